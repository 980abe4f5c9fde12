// What a step is made of, and what the cache is given after it.
#include <algorithm>
#include <span>
#include <utility>

#include "engine/scheduled_choice.h"
#include "engine/scheduler.h"

namespace replayssm {

// A row that has no room may take it from the cache.
Status Scheduler::prepare(const StepRow& row) {
  while (true) {
    Status ready = engine_.prepare(row);
    if (ready.ok() || options_.cache == nullptr || !options_.cache->evict_one()) return ready;
  }
}

// The choice's next step within `tokens` tokens and `logits` rows of logits. A chunk ends where the
// cache is to be given a sequence, and before the last token of a prompt whose choices part there.
StepRow Scheduler::next_row(Choice& choice, int tokens, int logits) const {
  Sequence& sequence = choice.sequence;
  StepRow row = Engine::next_row(sequence, std::min(tokens, engine_.runner().limits().chunk));
  row.rules = &choice.rules;
  if (row.phase != Phase::prefill) {
    if (!choice.drafts.empty()) row.phase = Phase::verify;
    row.drafts = choice.drafts;
    row.most_accepted = choice.most_accepted;
    row.tokens += static_cast<int>(choice.drafts.size());
    row.logits = row.tokens;
    return row;
  }

  const Generation& generation = *choice.generation;
  const int begin = sequence.evaluated();
  int end = begin + row.tokens;
  const auto stop_at = [&](int depth) {
    if (depth > begin) end = std::min(end, depth);
  };
  if (!generation.forked) stop_at(generation.prompt_tokens - 1);
  if (options_.cache != nullptr && engine_.options().recurrence == Recurrence::replay) {
    const auto next = generation.branch_points.upper_bound(begin);
    if (next != generation.branch_points.end()) stop_at(*next);
    stop_at(choice.last_kept + options_.track_interval + engine_.options().fold_block);
  }
  if (choice.rules.prompt_logprobs()) end = std::min(end, begin + logits);
  row.tokens = end - begin;
  if (choice.rules.prompt_logprobs()) {
    row.logits = row.tokens;
  } else {
    row.logits = end == sequence.prompt_tokens && sequence.waiting() == row.tokens ? 1 : 0;
  }
  return row;
}

// Drafts that the choice's next step may verify: a window does not reach beyond max_tokens, and so
// not beyond the context either.
int Scheduler::most_drafts(const Choice& choice) const {
  if (choice.sequence.phase() == Phase::prefill || choice.sequence.waiting() != 1) return 0;
  const int left = choice.generation->request.max_tokens - choice.outputs;
  return std::clamp(left - 1, 0, engine_.most_drafts());
}

// For every choice that decodes and has room for a window; the others go on without, and nothing is
// evicted for a window. `leaves_out`: so do those whose memory is on its way; otherwise what drafts
// for them comes after that.
Status Scheduler::propose_drafts(bool leaves_out) {
  std::vector<DraftRequest> requests;
  std::vector<Choice*> owners;
  for (const ChoicePtr& choice : running_) {
    choice->drafts.clear();
    const int most = most_drafts(*choice);
    Sequence& sequence = choice->sequence;
    StepRow window{&sequence, 1 + most, Phase::verify};
    if (most == 0 || !engine_.prepare(window).ok()) continue;
    if (!engine_.memory().ready(sequence.memory)) {
      if (leaves_out) continue;
      REPLAYSSM_TRY(engine_.memory().follow_transfers(sequence.memory));
    }
    requests.push_back({{sequence.tokens, sequence.memory.pages(), &sequence.drafter},
                        most,
                        &sequence.sampling.params(),
                        sequence.sampling.outputs(),
                        {}});
    owners.push_back(choice.get());
  }
  if (requests.empty()) return {};
  REPLAYSSM_TRY(engine_.propose(requests));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    owners[i]->drafts = std::move(requests[i].drafts);
    owners[i]->most_accepted = requests[i].most_accepted;
  }
  return {};
}

// Running choices in the order of admission; one that was resumed has its old place.
std::vector<Scheduler::Choice*> Scheduler::by_rank() const {
  std::vector<Choice*> ranked;
  for (const ChoicePtr& choice : running_) ranked.push_back(choice.get());
  std::sort(ranked.begin(), ranked.end(),
            [&](const Choice* a, const Choice* b) { return before(*a, *b); });
  return ranked;
}

Result<std::vector<StepRow>> Scheduler::compose(StepEvents& events) {
  const bool drafts = engine_.most_drafts() > 0;
  if (drafts) REPLAYSSM_TRY(propose_drafts(true));
  // Whose memory is on its way is left out, as long as others can go on.
  for (bool leaves_out = true;;) {
    std::vector<StepRow> rows;
    std::optional<Error> no_room;
    Choice* stuck = nullptr;
    bool left_out = false;
    // By index: forks are added at the end.
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (!forks_now(*running_[i])) continue;
      if (const Status forked = fork_choices(*running_[i]); !forked.ok()) {
        stuck = running_[i].get();
        no_room = forked.error();
      }
    }
    int tokens = engine_.runner().limits().tokens;
    // Every running row may want a window of logits; what is left serves whole prompts.
    const int windows = static_cast<int>(running_.size()) * (1 + engine_.most_drafts());
    int logits = engine_.runner().limits().logit_rows - windows + 1;
    const std::vector<Choice*> ranked = by_rank();
    for (const Phase phase : {Phase::decode, Phase::prefill}) {
      for (Choice* choice : ranked) {
        if (choice->sequence.phase() != phase || tokens == 0 || forks_now(*choice)) continue;
        const StepRow row = next_row(*choice, tokens, logits);
        if (row.tokens == 0) continue;
        const Status ready = prepare(row);
        if (!ready) {
          // The others go on, and what they fold or finish makes room.
          if (stuck == nullptr) stuck = choice;
          no_room = ready.error();
          continue;
        }
        if (leaves_out && !engine_.memory().ready(choice->sequence.memory)) {
          left_out = true;
          continue;
        }
        tokens -= row.tokens;
        if (phase == Phase::prefill && row.logits > 1) logits -= row.logits - 1;
        rows.push_back(row);
      }
    }
    if (rows.empty() && left_out) {
      leaves_out = false;
      // It is these rows' turn whatever they wait for: they have their windows as any other.
      if (drafts) REPLAYSSM_TRY(propose_drafts(false));
      continue;
    }
    if (!rows.empty() || stuck == nullptr) return rows;
    // Nobody can go on: one makes room for the rest.
    if (running_.size() == 1) {
      finish(*stuck, FinishReason::error, no_room, events);
      return rows;
    }
    const auto last =
        std::max_element(running_.begin(), running_.end(),
                         [&](const ChoicePtr& a, const ChoicePtr& b) { return before(*a, *b); });
    ChoicePtr paused = std::move(*last);
    running_.erase(last);
    pause(std::move(paused));
  }
}

// Whether the step behind the launched one can be launched now: everybody who runs has one token in
// it, and nobody waits who could run.
bool Scheduler::may_launch_ahead() const {
  const bool wanted = options_.overlap == Overlap::always ||
                      (options_.overlap == Overlap::beside_host && engine_.runs_beside_host());
  // Only what was logged is taken back for nothing when a sequence has ended.
  if (!wanted || !engine_.options().overlap || engine_.options().recurrence != Recurrence::replay) {
    return false;
  }
  std::size_t going_on = 0;
  for (const StepRow& row : engine_.launched()) {
    if (row.sequence == nullptr) continue;
    if (!engine_.may_precede(row)) return false;
    ++going_on;
  }
  if (going_on != running_.size()) return false;
  if (waiting_.empty()) return true;
  const Choice& next = *waiting_.front();
  return lacks(next, kAnyPriority) && !may_make_way(next);
}

// The step behind the launched one, of those who go on whatever they are given there. Empty: it has
// to wait.
std::vector<StepRow> Scheduler::compose_ahead() {
  std::vector<StepRow> rows;
  for (Choice* choice : by_rank()) {
    const Generation& generation = *choice->generation;
    const bool ends = generation.cancelled || choice->stop_after ||
                      choice->outputs + 1 == generation.request.max_tokens;
    if (ends) continue;
    StepRow row = Engine::next_row(choice->sequence, 1);
    row.rules = &choice->rules;
    // Others may have to make room, or to go on without this one.
    if (!engine_.prepare(row).ok() || !engine_.memory().ready(choice->sequence.memory)) return {};
    rows.push_back(row);
  }
  return rows;
}

// Pages that no choice writes to once the choices have parted.
int Scheduler::pages_shared_by_forks(const Generation& generation) const {
  return engine_.memory().layout().full_pages(generation.prompt_tokens - 1);
}

bool Scheduler::forks_now(const Choice& choice) {
  const Generation& generation = *choice.generation;
  return !generation.forked && choice.sequence.evaluated() == generation.prompt_tokens - 1;
}

// The first choice stands before the prompt's last token. The others begin there, with the same
// past; each evaluates that token for itself. All of them, or none when there is no room.
Status Scheduler::fork_choices(Choice& leader) {
  const std::shared_ptr<Generation> generation = leader.generation;
  // What the prompt's tokens before the last one predict is all there is to report of it.
  leader.rules.prompt_is_done();
  std::vector<ChoicePtr> forks;
  for (int i = 1; i < generation->request.choices; ++i) {
    const std::uint64_t seed = generation->request.sampling.seed + static_cast<std::uint64_t>(i);
    auto sequence = engine_.fork(leader.sequence, seed);
    while (!sequence && options_.cache != nullptr && options_.cache->evict_one()) {
      sequence = engine_.fork(leader.sequence, seed);
    }
    if (!sequence) return sequence.error();
    auto choice = std::make_unique<Choice>();
    choice->generation = generation;
    choice->index = i;
    choice->rules = leader.rules;
    choice->sequence = std::move(*sequence);
    choice->last_kept = leader.last_kept;
    choice->shares_prompt = true;
    forks.push_back(std::move(choice));
  }
  running_.reserve(running_.size() + forks.size());  // all or none, also when memory runs out
  for (ChoicePtr& choice : forks) running_.push_back(std::move(choice));
  generation->forked = true;
  leader.shares_prompt = true;
  return {};
}

// At the end of a step: what the next request may want to resume from is kept by reference.
void Scheduler::publish(Choice& choice) {
  if (options_.cache == nullptr || engine_.options().recurrence == Recurrence::packed) return;
  const Generation& generation = *choice.generation;
  const Sequence& sequence = choice.sequence;
  const int evaluated = sequence.evaluated();
  const int checkpoint = sequence.memory.cursor().checkpoint.tokens;
  const auto prefix = [&](int tokens) {
    return std::span(sequence.tokens).first(static_cast<std::size_t>(tokens));
  };
  // Whether it is known now. What found no room is tried again, not passed over.
  const auto published = [&](const Result<bool>& kept) {
    if (!kept) {
      ++counters_.publications_skipped;
      return false;
    }
    counters_.checkpoints_running += *kept ? 1 : 0;
    choice.last_kept = std::max(choice.last_kept, checkpoint);
    return true;
  };
  // The end of the prompt once for all choices, and where the prompt is likely to part from others.
  const bool end_of_prompt = evaluated == generation.prompt_tokens && choice.index == 0;
  if (end_of_prompt || generation.branch_points.count(evaluated) > 0) {
    if (published(options_.cache->keep_fork(prefix(evaluated), sequence.memory))) return;
  }
  // Along the way: no further apart than the interval, whatever the size of the next step.
  const int step = sequence.phase() == Phase::prefill ? engine_.runner().limits().tokens : 1;
  if (checkpoint > choice.last_kept &&
      checkpoint + step > choice.last_kept + options_.track_interval) {
    published(options_.cache->keep_checkpoint(prefix(checkpoint), sequence.memory));
  }
}

// A sequence that ends or pauses is handed over as it is; nothing is copied.
void Scheduler::keep_at_end(Choice& choice) {
  Sequence& sequence = choice.sequence;
  if (options_.cache == nullptr || !sequence.memory || sequence.evaluated() == 0) return;
  const auto tokens =
      std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.evaluated()));
  if (options_.cache->keep(tokens, std::move(sequence.memory))) ++counters_.checkpoints_final;
}

}  // namespace replayssm
