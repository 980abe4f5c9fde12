#include "engine/engine_service.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <mutex>
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

struct Submit {
  GenerationId id;
  GenerationRequest request;
  GenerationHandler handler;
};
struct Cancel {
  GenerationId id;
};
struct StopChoice {
  GenerationId id;
  int choice;
  int output_tokens;
};
struct Flush {
  std::promise<int> dropped;
};
using Command = std::variant<Submit, Cancel, StopChoice, Flush>;

// A generation whose events are not over. Engine thread only.
struct Live {
  GenerationHandler handler;
  int choices = 1;
};

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
  std::map<GenerationId, Live> live;
  int failures = 0;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<Command> inbox;
  std::shared_ptr<const EngineState> state = std::make_shared<EngineState>();
  std::int32_t next_id = 0;
  int open_choices = 0;
  std::int64_t refused = 0;
  bool draining = false;
  bool stopping = false;
  std::optional<Error> failure;

  std::thread thread;

  void run();
  bool wait_for_work(std::deque<Command>& commands);
  void apply(Command& command);
  void step();
  void dispatch(StepEvents events);
  void tell(GenerationId id, GenerationEvent event);
  void end(GenerationId id, const GenerationFinished& finished);
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

std::variant<GenerationId, Refusal> EngineService::submit(GenerationRequest request,
                                                          GenerationHandler handler) {
  auto refusal = parts_->scheduler->check(request);
  const std::lock_guard lock(parts_->mutex);
  const int most = parts_->engine->plan().rows + parts_->options.max_queued_requests.value_or(0);
  if (parts_->failure) {
    refusal = Refusal{Refusal::Kind::failed, "", parts_->failure->message};
  } else if (parts_->draining) {
    refusal = Refusal{Refusal::Kind::draining, "", "the server is about to end"};
  } else if (!refusal && parts_->options.max_queued_requests &&
             parts_->open_choices + request.choices > most) {
    refusal = Refusal{Refusal::Kind::queue_full, "",
                      fmt::format("--max-queued-requests: {} requests run or wait already, at most "
                                  "{} can",
                                  parts_->open_choices, most)};
  }
  if (refusal) {
    ++parts_->refused;
    return *std::move(refusal);
  }
  const GenerationId id{parts_->next_id++};
  parts_->open_choices += request.choices;
  parts_->inbox.push_back(Submit{id, std::move(request), std::move(handler)});
  parts_->wake.notify_one();
  return id;
}

void EngineService::cancel(GenerationId id) {
  const std::lock_guard lock(parts_->mutex);
  parts_->inbox.push_back(Cancel{id});
  parts_->wake.notify_one();
}

void EngineService::stop_choice(GenerationId id, int choice, int output_tokens) {
  const std::lock_guard lock(parts_->mutex);
  parts_->inbox.push_back(StopChoice{id, choice, output_tokens});
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

// Sleeps while there is nothing to do. False when the thread is to end.
bool EngineService::Parts::wait_for_work(std::deque<Command>& commands) {
  std::unique_lock lock(mutex);
  wake.wait(lock, [&] { return stopping || !inbox.empty() || !scheduler->idle(); });
  commands = std::exchange(inbox, {});
  if (!stopping) return true;
  for (const auto& [id, generation] : live) scheduler->cancel(id);
  return !commands.empty() || !scheduler->idle();
}

void EngineService::Parts::run() {
  std::deque<Command> commands;
  while (wait_for_work(commands)) {
    for (Command& command : commands) apply(command);
    if (scheduler->idle()) {
      publish_state();
    } else {
      step();
    }
  }
}

void EngineService::Parts::apply(Command& command) {
  if (auto* submit = std::get_if<Submit>(&command)) {
    const int choices = submit->request.choices;
    live.emplace(submit->id, Live{std::move(submit->handler), choices});
    std::optional<Error> failed;
    try {
      const auto id = scheduler->submit(std::move(submit->request), submit->id);
      if (!id) failed = id.error();
    } catch (const std::exception& error) {  // memory for the request's tokens, for example
      failed = Error{error.what()};
    }
    if (!failed) return;
    for (int i = 0; i < choices; ++i) {
      tell(submit->id, ChoiceFinished{i, FinishReason::error, std::nullopt, 0, failed});
    }
    end(submit->id, GenerationFinished{});
  } else if (const auto* cancel = std::get_if<Cancel>(&command)) {
    scheduler->cancel(cancel->id);
  } else if (const auto* stop = std::get_if<StopChoice>(&command)) {
    scheduler->stop_choice(stop->id, stop->choice, stop->output_tokens);
  } else if (auto* flush = std::get_if<Flush>(&command)) {
    flush->dropped.set_value(cache == nullptr ? 0 : cache->clear());
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
    failed = Error{fmt::format("a step of the engine failed: {}", error.what())};
  }
  dispatch(scheduler->abandon(*failed));
  if (++failures == kFailuresInARow) give_up(*failed);
}

void EngineService::Parts::give_up(const Error& error) {
  {
    const std::lock_guard lock(mutex);
    failure = error;
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
  for (const Finished& finished : events.finished) {
    const int completion = static_cast<int>(finished.output.size()) + (finished.stop_token ? 1 : 0);
    tell(finished.request, ChoiceFinished{finished.choice, finished.reason, finished.stop_token,
                                          completion, finished.error});
    if (finished.generation) end(finished.request, *finished.generation);
  }
}

void EngineService::Parts::tell(GenerationId id, GenerationEvent event) {
  const auto found = live.find(id);
  if (found != live.end()) found->second.handler(std::move(event));
}

void EngineService::Parts::end(GenerationId id, const GenerationFinished& finished) {
  const auto found = live.find(id);
  if (found == live.end()) return;
  const Live generation = std::move(found->second);
  live.erase(found);
  {
    const std::lock_guard lock(mutex);
    open_choices -= generation.choices;
  }
  generation.handler(finished);
}

void EngineService::Parts::publish_state() {
  auto newest = std::make_shared<EngineState>(scheduler->state());
  const std::lock_guard lock(mutex);
  state = std::move(newest);
}

}  // namespace replayssm
