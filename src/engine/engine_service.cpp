#include "engine/engine_service.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/scheduler.h"

namespace replayssm {
namespace {

// Steps that may fail one after the other before the engine is given up.
constexpr int kFailuresInARow = 3;
// Sequences that a prefix cache has room for at least, however few requests run.
constexpr int kKeptSequences = 8;
// Rows of logits beyond those of the running requests, for the log-probabilities of prompts.
constexpr int kPromptLogitRows = 64;

// A generation whose events are not over. Engine thread only.
struct Live {
  GenerationHandler handler;
  std::vector<bool> open;   // choices whose end was not told
  GenerationFinished last;  // what is known of it
  bool deaf = false;        // the handler has thrown: it is told of ends only
};
using LiveMap = std::map<GenerationId, Live>;

// What callers want of a generation that is not over. Made with it, so that wishing needs no
// memory.
struct Wishes {
  bool cancel = false;
  std::vector<std::optional<int>> stop_after;  // output tokens, by choice
  bool known = false;                          // to the scheduler
};
using WishMap = std::map<GenerationId, Wishes>;

struct Submit {
  LiveMap::node_type live;
  WishMap::node_type wishes;  // empty once it is queued
  GenerationRequest request;
};
struct Flush {
  std::promise<int> dropped;
};
using Command = std::variant<Submit, Flush>;

// What is said of an error when there is no memory for its words; these need none.
Error without_memory() { return Error{"out of memory"}; }

Error error_of(std::string_view what, const std::exception& error) {
  try {
    return Error{fmt::format("{}: {}", what, error.what())};
  } catch (const std::bad_alloc&) {
    return without_memory();
  }
}

Error copy_of(const Error& error) {
  try {
    return error;
  } catch (const std::bad_alloc&) {
    return without_memory();
  }
}

ChoiceFinished failed_choice(int choice, const Error& error) {
  return {choice, FinishReason::error, std::nullopt, 0, copy_of(error)};
}

Status check(const ServiceOptions& options) {
  if (options.track_interval < 1 || options.track_interval % options.engine.fold_block != 0) {
    return refuse(
        "--mamba-track-interval", options.track_interval,
        fmt::format("a multiple of --linear-replayssm-cache-len, {}", options.engine.fold_block));
  }
  if (options.max_queued_requests && *options.max_queued_requests < 0) {
    return refuse("--max-queued-requests", *options.max_queued_requests, "0 or more");
  }
  if (options.host_cache_bytes < 0) {
    return refuse("--hicache-size", options.host_cache_bytes, "0 or more");
  }
  return {};
}

}  // namespace

EngineOptions service_engine_options(const ServiceOptions& options) {
  EngineOptions engine = options.engine;
  if (options.prefix_cache) engine.kept_sequences_least = kKeptSequences;
  engine.prompt_logit_rows = kPromptLogitRows;
  return engine;
}

struct EngineService::Parts {
  ServiceOptions options;
  // Engine thread only, once it runs.
  std::unique_ptr<Engine> engine;
  std::unique_ptr<PrefixCache> cache;
  std::unique_ptr<Scheduler> scheduler;
  LiveMap live;
  int failures = 0;
  bool state_is_old = false;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<Command> inbox;
  WishMap wishes;  // of accepted generations that are not over
  bool wished = false;
  std::shared_ptr<const EngineState> state = std::make_shared<EngineState>();
  std::int32_t next_id = 0;
  int open_choices = 0;
  std::int64_t refused = 0;
  bool draining = false;
  bool stopping = false;
  std::optional<Error> failure;

  std::thread thread;

  std::variant<GenerationId, Refusal> queue(std::optional<Refusal> refusal, Submit submit);

  void run();
  bool wait_for_work(std::deque<Command>& commands);
  void apply(Command& command);
  void grant_wishes();
  void start(Submit& submit);
  void step();
  void abandon(const Error& error);
  void dispatch(StepEvents events);
  void tell(GenerationId id, GenerationEvent event);
  void end_choice(GenerationId id, ChoiceFinished finished,
                  const std::optional<GenerationFinished>& last);
  void give_up(const Error& error);
  void publish_state();
};

Result<std::unique_ptr<EngineService>> EngineService::start(const ServiceOptions& options) {
  REPLAYSSM_TRY(check(options));
  auto parts = std::make_unique<Parts>();
  parts->options = options;
  auto engine = Engine::create(service_engine_options(options));
  if (!engine) return engine.error();
  parts->engine = std::move(*engine);
  SchedulerOptions scheduler_options;
  scheduler_options.policy = options.policy;
  scheduler_options.track_interval = options.track_interval;
  if (options.prefix_cache) {
    parts->cache = std::make_unique<PrefixCache>(
        parts->engine->memory(), parts->engine->ops(),
        PrefixCacheSizes{parts->engine->plan().kept_rows, options.host_cache_bytes});
    scheduler_options.cache = parts->cache.get();
  }
  parts->scheduler = std::make_unique<Scheduler>(*parts->engine, scheduler_options);
  parts->publish_state();
  std::unique_ptr<EngineService> service(new EngineService(std::move(parts)));
  Parts& running = *service->parts_;
  running.thread = std::thread([&running] { running.run(); });
  return service;
}

EngineService::EngineService(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

EngineService::~EngineService() {
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->stopping = true;
    parts_->draining = true;
  }
  parts_->wake.notify_one();
  if (parts_->thread.joinable()) parts_->thread.join();
}

const ModelConfig& EngineService::config() const { return parts_->engine->config(); }
const ServiceOptions& EngineService::options() const { return parts_->options; }
const MemoryPlan& EngineService::plan() const { return parts_->engine->plan(); }
int EngineService::context_length() const { return parts_->engine->context_length(); }
int EngineService::threads() const { return parts_->engine->threads(); }
Status EngineService::host_cache_reserved() const {
  return parts_->cache ? parts_->cache->reserved() : Status{};
}

std::variant<GenerationId, Refusal> EngineService::submit(GenerationRequest request,
                                                          GenerationHandler handler) {
  try {
    auto refusal = parts_->scheduler->check(request);
    // Made here, so that the engine's thread cannot run out of memory for it.
    LiveMap made;
    const std::vector<bool> open(refusal ? 0 : static_cast<std::size_t>(request.choices), true);
    GenerationFinished last;
    last.prompt_tokens = static_cast<int>(request.prompt.size());
    made.emplace(GenerationId{}, Live{std::move(handler), open, last, false});
    WishMap wishes;
    wishes[GenerationId{}].stop_after.resize(open.size());
    return parts_->queue(
        std::move(refusal),
        Submit{made.extract(made.begin()), wishes.extract(wishes.begin()), std::move(request)});
  } catch (const std::bad_alloc&) {
    return Refusal{Refusal::Kind::queue_full, "", "no memory for another request; try again later"};
  }
}

void EngineService::cancel(GenerationId id) noexcept {
  const std::lock_guard lock(parts_->mutex);
  const auto found = parts_->wishes.find(id);
  if (found == parts_->wishes.end()) return;
  found->second.cancel = true;
  parts_->wished = true;
  parts_->wake.notify_one();
}

void EngineService::stop_choice(GenerationId id, int choice, int output_tokens) noexcept {
  const std::lock_guard lock(parts_->mutex);
  const auto found = parts_->wishes.find(id);
  if (found == parts_->wishes.end()) return;
  auto& stop_after = found->second.stop_after;
  if (choice < 0 || choice >= static_cast<int>(stop_after.size())) return;
  stop_after[static_cast<std::size_t>(choice)] = output_tokens;
  parts_->wished = true;
  parts_->wake.notify_one();
}

int EngineService::flush_cache() {
  Flush flush;
  std::future<int> dropped = flush.dropped.get_future();
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->inbox.push_back(std::move(flush));
  }
  parts_->wake.notify_one();
  return dropped.get();
}

void EngineService::drain() {
  const std::lock_guard lock(parts_->mutex);
  parts_->draining = true;
}

bool EngineService::idle() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->open_choices == 0;
}

std::optional<Error> EngineService::failure() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->failure;
}

EngineState EngineService::state() const {
  const auto [state, refused] = [&] {
    const std::lock_guard lock(parts_->mutex);
    return std::pair(parts_->state, parts_->refused);
  }();
  EngineState copy = *state;
  copy.counters.requests_refused = refused;
  return copy;
}

// Any thread. `refusal`: what is wrong with the request by itself.
std::variant<GenerationId, Refusal> EngineService::Parts::queue(std::optional<Refusal> refusal,
                                                                Submit submit) {
  const int choices = submit.request.choices;
  const std::lock_guard lock(mutex);
  const int most = engine->plan().rows + options.max_queued_requests.value_or(0);
  if (failure) {
    refusal = Refusal{Refusal::Kind::failed, "", failure->message};
  } else if (draining) {
    refusal = Refusal{Refusal::Kind::draining, "", "the server is about to end"};
  } else if (!refusal && options.max_queued_requests && open_choices + choices > most) {
    refusal = Refusal{Refusal::Kind::queue_full, "",
                      fmt::format("--max-queued-requests: {} requests run or wait already, at most "
                                  "{} can",
                                  open_choices, most)};
  }
  if (refusal) {
    ++refused;
    return *std::move(refusal);
  }
  const GenerationId id{next_id};
  submit.live.key() = id;
  submit.wishes.key() = id;
  auto own_wishes = std::move(submit.wishes);
  inbox.emplace_back(std::move(submit));
  wishes.insert(std::move(own_wishes));
  ++next_id;
  open_choices += choices;
  wake.notify_one();
  return id;
}

// Sleeps while there is nothing to do. False when the thread is to end.
bool EngineService::Parts::wait_for_work(std::deque<Command>& commands) {
  commands.clear();
  std::unique_lock lock(mutex);
  wake.wait(lock, [&] { return stopping || !inbox.empty() || wished || !scheduler->idle(); });
  commands.swap(inbox);
  if (!stopping) return true;
  for (const auto& [id, generation] : live) scheduler->cancel(id);
  return !commands.empty() || !scheduler->idle();
}

void EngineService::Parts::run() {
  std::deque<Command> commands;
  while (wait_for_work(commands)) {
    for (Command& command : commands) apply(command);
    grant_wishes();
    if (!scheduler->idle()) step();
    if (state_is_old) publish_state();
  }
}

void EngineService::Parts::apply(Command& command) {
  if (auto* submit = std::get_if<Submit>(&command)) {
    start(*submit);
    state_is_old = true;
  } else if (auto* flush = std::get_if<Flush>(&command)) {
    const int dropped = cache == nullptr ? 0 : cache->clear();
    if (Drafter* drafter = engine->drafter()) drafter->clear();
    publish_state();  // whoever has flushed looks next
    flush->dropped.set_value(dropped);
  }
}

// Wishes for a generation that is still in the inbox stay for the next time.
void EngineService::Parts::grant_wishes() {
  const std::lock_guard lock(mutex);
  if (!std::exchange(wished, false)) return;
  for (auto& [id, each] : wishes) {
    if (!each.known) {
      wished = true;
      continue;
    }
    if (std::exchange(each.cancel, false)) scheduler->cancel(id);
    for (std::size_t choice = 0; choice < each.stop_after.size(); ++choice) {
      const auto tokens = std::exchange(each.stop_after[choice], std::nullopt);
      if (tokens) scheduler->stop_choice(id, static_cast<int>(choice), *tokens);
    }
  }
}

void EngineService::Parts::start(Submit& submit) {
  const GenerationId id = submit.live.key();
  const int choices = submit.request.choices;
  live.insert(std::move(submit.live));
  std::optional<Error> failed;
  {
    const std::lock_guard lock(mutex);
    wishes.at(id).known = true;
    if (failure) failed = copy_of(*failure);  // given up while it was in the inbox
  }
  try {
    if (!failed) {
      const auto queued = scheduler->submit(std::move(submit.request), id);
      if (!queued) failed = queued.error();
    }
  } catch (const std::exception& error) {  // memory for the request's tokens, for example
    failed = error_of("the request was not queued", error);
  }
  for (int i = 0; failed && i < choices; ++i) {
    end_choice(id, failed_choice(i, *failed), std::nullopt);
  }
}

// A step that fails ends what takes part in it; the engine goes on with the rest.
void EngineService::Parts::step() {
  std::optional<Error> failed;
  try {
    auto events = scheduler->step();
    if (events) {
      failures = 0;
      dispatch(std::move(*events));
      return;
    }
    failed = events.error();
  } catch (const std::exception& error) {
    failed = error_of("a step of the engine failed", error);
  }
  abandon(*failed);
  if (++failures == kFailuresInARow) give_up(*failed);
}

// What had ended in the step that failed was not reported, and abandoning may fail itself: whatever
// the scheduler does not know any more has ended.
void EngineService::Parts::abandon(const Error& error) {
  for (bool done = false; !done;) {
    try {
      dispatch(scheduler->abandon(error));
      done = true;
    } catch (const std::exception&) {
      continue;  // until there is memory to report the ends with
    }
  }
  for (auto at = live.begin(); at != live.end();) {
    const auto next = std::next(at);  // ending its last choice takes `at` away
    const GenerationId id = at->first;
    const int choices = static_cast<int>(at->second.open.size());
    for (int choice = 0; choice < choices; ++choice) {
      if (!scheduler->has(id, choice)) end_choice(id, failed_choice(choice, error), std::nullopt);
    }
    at = next;
  }
  publish_state();
}

void EngineService::Parts::give_up(const Error& error) {
  {
    const std::lock_guard lock(mutex);
    failure = copy_of(error);
  }
  for (const auto& [id, generation] : live) scheduler->cancel(id);
}

// What is told was seen before in state().
void EngineService::Parts::dispatch(StepEvents events) {
  for (Finished& finished : events.finished) finished.sequence = Sequence{};
  publish_state();
  for (const StepEvents::Progress& progress : events.progress) {
    tell(progress.request, PromptProgress{progress.evaluated, progress.prompt});
  }
  for (StepEvents::Prompt& prompt : events.prompts) tell(prompt.request, std::move(prompt.event));
  for (StepEvents::Token& token : events.tokens) {
    tell(token.request, OutputToken{token.choice, token.token, std::move(token.logprobs)});
  }
  for (Finished& finished : events.finished) {
    const int completion = static_cast<int>(finished.output.size()) + (finished.stop_token ? 1 : 0);
    end_choice(finished.request,
               ChoiceFinished{finished.choice, finished.reason, finished.stop_token, completion,
                              std::move(finished.error)},
               finished.generation);
  }
}

// A handler that throws has lost an event: its generation ends, and it hears of nothing but that.
void EngineService::Parts::tell(GenerationId id, GenerationEvent event) {
  const auto found = live.find(id);
  if (found == live.end()) return;
  Live& generation = found->second;
  if (generation.deaf && !std::holds_alternative<ChoiceFinished>(event)) return;
  try {
    generation.handler(std::move(event));
  } catch (const std::exception&) {
    generation.deaf = true;
    scheduler->cancel(id);
  }
}

// With the generation's last choice, its end: `last` if that is known.
void EngineService::Parts::end_choice(GenerationId id, ChoiceFinished finished,
                                      const std::optional<GenerationFinished>& last) {
  const auto found = live.find(id);
  if (found == live.end()) return;
  Live& generation = found->second;
  const auto choice = static_cast<std::size_t>(finished.choice);
  if (choice >= generation.open.size() || !generation.open[choice]) return;
  generation.open[choice] = false;
  generation.last.completion_tokens += finished.completion_tokens;
  tell(id, std::move(finished));
  if (std::find(generation.open.begin(), generation.open.end(), true) != generation.open.end()) {
    return;
  }
  const LiveMap::node_type over = live.extract(found);
  {
    const std::lock_guard lock(mutex);
    open_choices -= static_cast<int>(over.mapped().open.size());
    wishes.erase(id);
  }
  try {
    over.mapped().handler(last.value_or(over.mapped().last));
  } catch (const std::exception&) {
    return;  // the last event: nothing is left to end
  }
}

// Without memory for it the state stays as it was until the next occasion.
void EngineService::Parts::publish_state() {
  state_is_old = true;
  try {
    auto newest = std::make_shared<EngineState>(scheduler->state());
    state_is_old = false;
    const std::lock_guard lock(mutex);
    state = std::move(newest);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace replayssm
