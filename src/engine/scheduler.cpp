#include "engine/scheduler.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/scheduled_choice.h"

namespace replayssm {
namespace {

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine), options_(options) {}
Scheduler::~Scheduler() { engine_.forget_launched(); }

std::optional<Refusal> Scheduler::check_length(int prompt_tokens, int max_tokens,
                                               int choices) const {
  const auto refusal = [](Refusal::Kind kind, std::string_view field, const Error& error) {
    return Refusal{kind, std::string(field), error.message};
  };
  if (max_tokens < 1) {
    return refusal(Refusal::Kind::invalid, "max_tokens",
                   refuse("max_tokens", max_tokens, "at least 1"));
  }
  const std::int64_t longest = std::int64_t{prompt_tokens} + max_tokens;
  if (longest > engine_.context_length()) {
    return refusal(Refusal::Kind::too_long, "max_tokens",
                   refuse("max_tokens", max_tokens,
                          fmt::format("at most {}: the prompt has {} tokens and the context {}",
                                      std::max(0, engine_.context_length() - prompt_tokens),
                                      prompt_tokens, engine_.context_length())));
  }
  const int pages = engine_.memory().layout().pages_for(longest);
  if (pages > engine_.plan().pages) {
    return refusal(
        Refusal::Kind::too_long, "max_tokens",
        refuse(
            "max_tokens", max_tokens,
            fmt::format("what {} KV pages of {} tokens hold: {} tokens with the prompt's {}",
                        engine_.plan().pages, engine_.memory().layout().page_tokens,
                        std::int64_t{engine_.plan().pages} * engine_.memory().layout().page_tokens,
                        prompt_tokens)));
  }
  if (choices < 1 || choices > engine_.plan().rows) {
    return refusal(
        Refusal::Kind::invalid, "n",
        refuse("n", choices,
               fmt::format("1 to {}, the requests that can run together", engine_.plan().rows)));
  }
  // Choices part before the prompt's last token, all at once; what they have no room for after that
  // they evaluate in turn.
  const int shared = engine_.memory().layout().full_pages(prompt_tokens - 1);
  const int own = engine_.memory().layout().pages_for(prompt_tokens - 1) - shared;
  if (choices > 1 && std::int64_t{own} * choices > engine_.plan().pages - shared) {
    return refusal(
        Refusal::Kind::too_long, "n",
        refuse("n", choices,
               fmt::format("at most {}: the prompt's {} tokens fill {} of {} KV pages, and each "
                           "choice needs one of its own",
                           engine_.plan().pages - shared, prompt_tokens, shared,
                           engine_.plan().pages)));
  }
  return std::nullopt;
}

std::optional<Refusal> Scheduler::check(const GenerationRequest& request) const {
  if (const Status prompt = engine_.check_prompt(request.prompt); !prompt.ok()) {
    const bool long_prompt = static_cast<int>(request.prompt.size()) > engine_.context_length();
    return Refusal{long_prompt ? Refusal::Kind::too_long : Refusal::Kind::invalid, "prompt",
                   prompt.error().message};
  }
  const int vocab_size = engine_.config().vocab_size;
  if (request.constraint != nullptr &&
      request.constraint->vocabulary().vocabulary_size() > static_cast<std::size_t>(vocab_size)) {
    return Refusal{Refusal::Kind::invalid, "constraint",
                   refuse("constraint: tokens", request.constraint->vocabulary().vocabulary_size(),
                          fmt::format("at most the model's {}", vocab_size))
                       .message};
  }
  return check_length(static_cast<int>(request.prompt.size()), request.max_tokens, request.choices);
}

Result<GenerationId> Scheduler::submit(GenerationRequest request, std::optional<GenerationId> id) {
  if (const auto refusal = check(request)) {
    ++counters_.requests_refused;
    return Error{refusal->message};
  }
  auto choice = std::make_unique<Choice>();
  choice->generation = std::make_shared<Generation>();
  choice->rules = OutputRules(request, engine_.config().eos);
  Sequence& sequence = choice->sequence;
  sequence.tokens = std::move(request.prompt);
  sequence.prompt_tokens = static_cast<int>(sequence.tokens.size());
  sequence.sampling = SamplingState(request.sampling);
  sequence.sampling.add_prompt(sequence.tokens);
  Generation& generation = *choice->generation;
  generation.prompt_tokens = sequence.prompt_tokens;
  generation.unfinished = request.choices;
  generation.forked = request.choices == 1;
  for (const int depth : request.branch_points) {
    if (depth > 0 && depth < sequence.prompt_tokens) generation.branch_points.insert(depth);
  }
  generation.request = std::move(request);
  return enqueue(std::move(choice), id);
}

Result<GenerationId> Scheduler::submit(Sequence sequence, int max_tokens, bool ignore_eos) {
  const int tokens = static_cast<int>(sequence.tokens.size());
  if (const auto refusal = check_length(tokens, max_tokens, 1)) return Error{refusal->message};
  auto choice = std::make_unique<Choice>();
  choice->generation = std::make_shared<Generation>();
  GenerationRequest request;
  request.sampling = sequence.sampling.params();
  request.max_tokens = max_tokens;
  request.ignore_eos = ignore_eos;
  choice->rules = OutputRules(request, engine_.config().eos);
  choice->generation->request = std::move(request);
  choice->generation->prompt_tokens = tokens;
  choice->generation->prompt.cached_tokens = sequence.evaluated();
  choice->before = sequence.counters;
  choice->sequence = std::move(sequence);
  return enqueue(std::move(choice));
}

GenerationId Scheduler::enqueue(ChoicePtr choice, std::optional<GenerationId> given) {
  Generation& generation = *choice->generation;
  generation.id = given.value_or(GenerationId{next_id_});
  next_id_ = generation.id.value + 1;
  generation.submitted = Clock::now();
  counters_.prompt_tokens += generation.prompt_tokens;
  counters_.request_prompt_tokens.observe(generation.prompt_tokens);
  const GenerationId id = generation.id;
  wait(std::move(choice));
  return id;
}

// In the order of admission, which is that of submission but for priorities. A choice that was
// paused goes back to where it came from.
bool Scheduler::before(const Choice& a, const Choice& b) const {
  const GenerationRequest& x = a.generation->request;
  const GenerationRequest& y = b.generation->request;
  if (options_.policy == SchedulePolicy::priority && x.priority != y.priority) {
    return x.priority > y.priority;
  }
  if (a.generation->id != b.generation->id) return a.generation->id < b.generation->id;
  return a.index < b.index;
}

void Scheduler::wait(ChoicePtr choice) {
  const auto place =
      std::upper_bound(waiting_.begin(), waiting_.end(), choice,
                       [&](const ChoicePtr& a, const ChoicePtr& b) { return before(*a, *b); });
  waiting_.insert(place, std::move(choice));
}

void Scheduler::cancel(GenerationId request) {
  const auto mark = [&](const ChoicePtr& choice) {
    if (choice->generation->id == request) choice->generation->cancelled = true;
  };
  std::for_each(running_.begin(), running_.end(), mark);
  std::for_each(waiting_.begin(), waiting_.end(), mark);
}

void Scheduler::stop_choice(GenerationId request, int index, int output_tokens) {
  const auto mark = [&](const ChoicePtr& choice) {
    if (choice->generation->id != request || choice->index != index) return;
    choice->stop_after = std::clamp(output_tokens, 0, choice->outputs);
  };
  std::for_each(running_.begin(), running_.end(), mark);
  std::for_each(waiting_.begin(), waiting_.end(), mark);
}

bool Scheduler::has(GenerationId request, int index) const {
  const auto is_it = [&](const ChoicePtr& choice) {
    const Generation* generation = choice->generation.get();
    return generation != nullptr && generation->id == request &&
           (choice->index == index || !generation->forked);
  };
  return std::any_of(running_.begin(), running_.end(), is_it) ||
         std::any_of(waiting_.begin(), waiting_.end(), is_it);
}

// What was cancelled or stopped ends wherever it stands: it needs no room for that.
void Scheduler::end_early(StepEvents& events) {
  const auto end = [&](const ChoicePtr& choice) {
    if (choice->generation->cancelled) {
      finish(*choice, FinishReason::cancelled, std::nullopt, events);
    } else if (choice->stop_after) {
      finish(*choice, FinishReason::stop, std::nullopt, events);
    }
  };
  std::for_each(running_.begin(), running_.end(), end);
  std::for_each(waiting_.begin(), waiting_.end(), end);
  drop_finished();
}

Result<StepEvents> Scheduler::step() {
  StepEvents& events = events_;
  if (engine_.launched().empty()) {
    end_early(events);
    auto no_room = admit();
    if (no_room && running_.empty()) {
      // What has just ended gives its memory back when the caller drops it.
      if (!events.finished.empty()) return std::exchange(events_, {});
      // Nobody is left who could make room.
      finish(*waiting_.front(), FinishReason::error, std::move(no_room), events);
      drop_finished();
      return std::exchange(events_, {});
    }
    const auto composed = compose(events);
    if (!composed) return composed.error();
    drop_finished();
    if (composed->empty()) return std::exchange(events_, {});
    REPLAYSSM_TRY(engine_.launch(*composed));
  }
  if (may_launch_ahead()) {
    if (const auto ahead = compose_ahead(); !ahead.empty()) REPLAYSSM_TRY(engine_.launch(ahead));
  }

  auto results = engine_.take();
  if (!results) return results.error();
  ++counters_.steps;
  int tokens = 0;
  for (StepResult& result : *results) {
    tokens += result.evaluated;
    const auto owner = std::find_if(running_.begin(), running_.end(), [&](const ChoicePtr& c) {
      return &c->sequence == result.sequence;
    });
    count(**owner, result);
    take(**owner, result, events);
  }
  counters_.iteration_tokens.observe(tokens);
  drop_finished();
  // Those have no row in a step that is launched ahead.
  if (!engine_.launched().empty()) end_early(events);
  return std::exchange(events_, {});
}

StepEvents Scheduler::abandon(const Error& error) {
  engine_.forget_launched();
  for (const ChoicePtr& choice : running_) {
    if (choice->generation != nullptr) finish(*choice, FinishReason::error, error, events_);
  }
  drop_finished();
  return std::exchange(events_, {});
}

void Scheduler::count(Choice& choice, const StepResult& result) {
  const SequenceCounters& now = result.cost;
  const bool prefill = result.phase == Phase::prefill;
  if (now.folds > 0) choice.last_fold = choice.sequence.evaluated();
  (prefill ? counters_.folds_prefill : counters_.folds_due) += now.folds;
  counters_.state_bytes_read += now.state_bytes_read;
  counters_.state_bytes_written += now.state_bytes_written;
  if (!prefill) {
    counters_.ring_occupancy.observe(choice.sequence.memory.cursor().pending());
  }
  counters_.verify_windows += now.windows;
  for (std::size_t i = 0; i < static_cast<std::size_t>(now.drafts); ++i) {
    ++counters_.drafts[i];
    counters_.drafts_accepted[i] += i < static_cast<std::size_t>(now.drafts_accepted) ? 1 : 0;
  }
}

// What a step gave one of its rows.
void Scheduler::take(Choice& choice, StepResult& result, StepEvents& events) {
  Generation& generation = *choice.generation;
  const auto take_tokens = [&] {
    // Its end was asked for while the step ran.
    if (generation.cancelled || choice.stop_after) return;
    for (SampledToken& sampled : result.tokens) take_token(choice, std::move(sampled), events);
  };
  if (result.error) {
    take_tokens();  // those before the one that failed
    counters_.nonfinite_logits += result.finite ? 0 : 1;
    finish(choice, FinishReason::error, result.error, events);
    return;
  }
  if (result.phase == Phase::prefill && !generation.prompt_done) {
    events.progress.push_back(
        {generation.id, choice.sequence.evaluated(), generation.prompt_tokens});
    for (TokenLogprobs& logprobs : result.prompt_logprobs) {
      generation.prompt.logprobs.emplace_back(std::move(logprobs));
    }
    if (choice.sequence.evaluated() == generation.prompt_tokens) prompt_evaluated(choice, events);
  }
  publish(choice);
  take_tokens();
}

void Scheduler::prompt_evaluated(Choice& choice, StepEvents& events) {
  Generation& generation = *choice.generation;
  events.prompts.push_back({generation.id, generation.prompt});
  generation.prompt_done = true;
  choice.rules.prompt_is_done();
  generation.prompt.logprobs = {};
}

void Scheduler::take_token(Choice& choice, SampledToken sampled, StepEvents& events) {
  const auto now = Clock::now();
  Generation& generation = *choice.generation;
  if (choice.outputs == 0) {
    choice.first_token = now;
    if (choice.index == 0) {
      counters_.time_to_first_token.observe(seconds(now - generation.submitted));
    }
  } else {
    counters_.inter_token_latency.observe(seconds(now - choice.last_token));
  }
  choice.last_token = now;
  ++choice.outputs;
  ++counters_.generation_tokens;
  if (sampled.ends) {
    finish(choice, FinishReason::stop, std::nullopt, events);
    return;
  }
  events.tokens.push_back(
      {generation.id, choice.index, sampled.token, std::move(sampled.logprobs)});
  if (sampled.last) {
    choice.stop_after = choice.outputs;
    finish(choice, FinishReason::stop, std::nullopt, events);
  } else if (choice.outputs == generation.request.max_tokens) {
    finish(choice, FinishReason::length, std::nullopt, events);
  }
}

void Scheduler::finish(Choice& choice, FinishReason reason, std::optional<Error> error,
                       StepEvents& events) {
  const auto now = Clock::now();
  const std::shared_ptr<Generation> generation = choice.generation;
  if (!generation->started) generation->started = now;
  const auto& tokens = choice.sequence.tokens;
  Finished finished;
  finished.request = generation->id;
  finished.choice = choice.index;
  finished.reason = reason;
  finished.error = std::move(error);
  finished.prompt_tokens = generation->prompt_tokens;
  finished.reused_tokens = generation->prompt.cached_tokens;
  // A step that failed may have chosen more than it reported.
  const auto outputs = tokens.begin() + generation->prompt_tokens;
  finished.output.assign(outputs, outputs + choice.outputs);
  if (reason == FinishReason::stop && choice.stop_after) {
    finished.output.resize(static_cast<std::size_t>(*choice.stop_after));
  } else if (reason == FinishReason::stop) {
    finished.stop_token = finished.output.back();
    finished.output.pop_back();
  }
  const int completion = static_cast<int>(finished.output.size()) + (finished.stop_token ? 1 : 0);
  finished.timings.waiting = seconds(*generation->started - generation->submitted);
  finished.timings.prefill =
      seconds((choice.outputs > 0 ? choice.first_token : now) - *generation->started);
  finished.timings.decode = choice.outputs > 0 ? seconds(now - choice.first_token) : 0;
  finished.counters = choice.sequence.counters - choice.before;

  // A first choice that ends before the others exist ends them too.
  std::vector<Finished> others;
  for (int i = 1; !generation->forked && i < generation->request.choices; ++i) {
    Finished other;
    other.request = generation->id;
    other.choice = i;
    other.reason = reason;
    other.error = finished.error;
    other.prompt_tokens = generation->prompt_tokens;
    others.push_back(std::move(other));
  }
  events.finished.reserve(events.finished.size() + others.size() + 1);

  // From here on nothing fails before the end is reported: a choice ends once.
  choice.generation = nullptr;
  generation->completion_tokens += completion;
  generation->drafts += finished.counters.drafts;
  generation->drafts_accepted += finished.counters.drafts_accepted;
  generation->unfinished -= static_cast<int>(others.size()) + 1;
  counters_.request_generation_tokens.observe(completion);
  if (generation->unfinished == 0) {
    ++counters_.requests_finished[static_cast<std::size_t>(reason)];
    counters_.end_to_end_latency.observe(seconds(now - generation->submitted));
    counters_.queue_time.observe(finished.timings.waiting);
    counters_.prefill_time.observe(finished.timings.prefill);
    counters_.decode_time.observe(finished.timings.decode);
    finished.generation = GenerationFinished{generation->prompt_tokens,
                                             generation->prompt.cached_tokens,
                                             generation->prompt.lost_tokens,
                                             generation->prompt.lost_reason,
                                             generation->completion_tokens,
                                             finished.timings,
                                             generation->drafts,
                                             generation->drafts_accepted};
  }
  const bool keeps = reason != FinishReason::error;
  if (keeps && options_.cache == nullptr) finished.sequence = std::move(choice.sequence);
  for (Finished& other : others) events.finished.push_back(std::move(other));
  events.finished.push_back(std::move(finished));
  if (keeps) keep_at_end(choice);
  choice.sequence = Sequence{};
}

void Scheduler::drop_finished() {
  const auto finished = [](const ChoicePtr& choice) { return choice->generation == nullptr; };
  std::erase_if(running_, finished);
  std::erase_if(waiting_, finished);
}

}  // namespace replayssm
