// Who may run: rows and pages are promised, the cache gives way, and so does a running sequence of
// lower rank where the policy says so.
#include <algorithm>
#include <set>
#include <utility>

#include "engine/scheduled_choice.h"
#include "engine/scheduler.h"

namespace replayssm {
// What a choice needs alone. Choices that do not exist yet have their rows already, and will share
// the full pages of their prompt.
Scheduler::Promised Scheduler::promised_to(const Choice& choice) const {
  const Generation& generation = *choice.generation;
  const int length = static_cast<int>(choice.sequence.tokens.size());
  const int tokens = std::min(choice.final_tokens(), length + options_.promised_tokens);
  const int pages = engine_.memory().layout().pages_for(tokens);
  if (generation.forked) return {1, 1, pages};
  const int choices = generation.request.choices;
  return {1, choices, pages + (choices - 1) * (pages - pages_shared_by_forks(generation))};
}

// Of the running choices with at least this priority.
Scheduler::Promised Scheduler::promised(int least_priority) const {
  Promised all;
  std::set<const Generation*> shared;  // whose prompt's pages are counted
  for (const ChoicePtr& choice : running_) {
    const Generation* generation = choice->generation.get();
    if (generation->request.priority < least_priority) continue;
    const Promised each = promised_to(*choice);
    all.running += each.running;
    all.rows += each.rows;
    all.pages += each.pages;
    if (choice->shares_prompt && !shared.insert(generation).second) {
      all.pages -= pages_shared_by_forks(*generation);
    }
  }
  return all;
}

// What a choice would have to wait for beside the running ones of at least this priority, if
// anything.
std::optional<Error> Scheduler::lacks(const Choice& choice, int least_priority) const {
  const Promised taken = promised(least_priority);
  const Promised needed = promised_to(choice);
  if (taken.rows + needed.rows > engine_.plan().rows) {
    return Error{fmt::format("running requests: {} of {} rows are in use, {} more are needed",
                             taken.rows, engine_.plan().rows, needed.rows)};
  }
  // Alone, a request runs whatever it was promised: it was checked to fit.
  if (taken.running > 0 && taken.pages + needed.pages > engine_.plan().pages) {
    return Error{fmt::format("KV pages: {} are needed, {} of {} are promised", needed.pages,
                             taken.pages, engine_.plan().pages)};
  }
  return std::nullopt;
}

// Whether a running choice would be paused for this one: one of lower priority is there, and all
// that it outranks would be enough.
bool Scheduler::may_make_way(const Choice& choice) const {
  const int priority = choice.generation->request.priority;
  return options_.policy == SchedulePolicy::priority && !lacks(choice, priority) &&
         std::any_of(running_.begin(), running_.end(), [&](const ChoicePtr& running) {
           return running->generation->request.priority < priority;
         });
}

// Pauses the running choice of the lowest rank if may_make_way() says so.
bool Scheduler::make_way(const Choice& choice) {
  if (!may_make_way(choice)) return false;
  const auto lowest =
      std::max_element(running_.begin(), running_.end(),
                       [&](const ChoicePtr& a, const ChoicePtr& b) { return before(*a, *b); });
  ChoicePtr paused = std::move(*lowest);
  running_.erase(lowest);
  pause(std::move(paused));
  return true;
}

// In the order of the queue: a large request at its head is not overtaken.
std::optional<Error> Scheduler::admit() {
  while (!waiting_.empty()) {
    Choice& next = *waiting_.front();
    if (auto missing = lacks(next, kAnyPriority)) {
      // Whoever is paused goes behind the one it makes way for.
      if (make_way(next)) continue;
      return missing;
    }
    if (!next.sequence.memory) {
      if (const Status placed = place(next); !placed.ok()) return placed.error();
    }
    if (!next.generation->started) next.generation->started = Clock::now();
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return std::nullopt;
}

// Memory for a choice, with as much of its past as the cache has.
Status Scheduler::place(Choice& choice) {
  PrefixCache* cache = options_.cache;
  Sequence& sequence = choice.sequence;
  const bool whole = choice.rules.prompt_logprobs().has_value();
  bool cold = false;
  while (true) {
    PrefixCache::Match match;
    if (cache != nullptr) {
      match = cache->find(sequence.tokens, static_cast<int>(sequence.tokens.size()) - 1);
    }
    const bool reuses = match.entry != EntryId{} && !whole && !cold;
    auto memory = reuses ? cache->resume(match) : engine_.memory().admit();
    if (memory) {
      sequence.memory = std::move(*memory);
      if (whole || (cold && match.tokens > 0)) {
        match.lost += match.tokens;
        match.tokens = 0;
        if (match.lost > 0)
          match.reason = whole ? PrefixLoss::prompt_logprobs : PrefixLoss::evicted;
      }
      if (whole) choice.generation->prompt.logprobs.assign(1, std::nullopt);
      account_for_reuse(choice, match);
      return {};
    }
    if (cache == nullptr) return memory.error();
    // What would be resumed goes last. If it goes, or nothing is left to go, there is no room for
    // both it and this choice, and bringing it back from the host would end here again.
    const bool was_in_pools = reuses && cache->in_pools(match.entry);
    const bool evicted = cache->evict_one();
    if (!evicted && !reuses) return memory.error();
    cold = cold || !evicted || (was_in_pools && !cache->in_pools(match.entry));
  }
}

void Scheduler::account_for_reuse(Choice& choice, const PrefixCache::Match& match) {
  Generation& generation = *choice.generation;
  Sequence& sequence = choice.sequence;
  choice.last_kept = sequence.memory.cursor().checkpoint.tokens;
  if (choice.evaluated_before_pause > 0) {
    counters_.recomputed_tokens += std::max(0, choice.evaluated_before_pause - match.tokens);
  }
  if (generation.prompt_done) {
    // All but the anchor was evaluated once; what is missing of it is evaluated as a prompt.
    sequence.prompt_tokens = static_cast<int>(sequence.tokens.size()) - 1;
    return;
  }
  if (generation.started) {
    // What it evaluated itself before a pause is not somebody else's work; what was lost is.
    generation.prompt.cached_tokens = std::min(generation.prompt.cached_tokens, match.tokens);
    return;
  }
  generation.prompt.cached_tokens = match.tokens;
  if (options_.cache == nullptr) return;
  generation.prompt.lost_tokens = match.lost;
  generation.prompt.lost_reason = match.reason;
  counters_.prefix_queries += generation.prompt_tokens;
  counters_.prefix_hits += match.tokens;
  if (match.reason) {
    counters_.prefix_tokens_lost[static_cast<std::size_t>(*match.reason)] += match.lost;
    // Where this prompt parts from another one the next will, too.
    const int parting = match.tokens + match.lost;
    if (parting < generation.prompt_tokens) generation.branch_points.insert(parting);
  }
}

// Back into the queue; its memory goes into the cache, which may need it for others.
void Scheduler::pause(ChoicePtr paused) {
  Choice& choice = *paused;
  ++counters_.preemptions;
  choice.evaluated_before_pause = choice.sequence.evaluated();
  // Its log-probabilities will be computed again with it.
  if (choice.rules.prompt_logprobs()) choice.generation->prompt.logprobs.clear();
  wait(std::move(paused));
  keep_at_end(choice);
  choice.sequence.memory = Residence{};
  choice.shares_prompt = false;
}

}  // namespace replayssm
