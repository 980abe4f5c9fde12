// One allocation that fails, anywhere in a step or while a request is handed over: the service goes
// on, everybody is told an end, and nothing stays held.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "failing_allocations.h"
#include "listener.h"
#include "small_engine.h"

namespace replayssm {
namespace {

constexpr long kNever = -1;

ServiceOptions service_options() {
  ServiceOptions options;
  options.engine = small_options();
  options.engine.threads = 1;
  options.engine.max_running_requests = 2;
  options.engine.context_length = 96;
  options.engine.step_tokens = 24;
  options.policy = SchedulePolicy::priority;
  options.track_interval = 16;
  options.host_cache_bytes = 1 << 20;
  return options;
}

std::vector<TokenId> prompt_of(int tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt;
  for (int i = 0; i < tokens; ++i) prompt.push_back(static_cast<TokenId>(random() % 200));
  return prompt;
}

// Three requests that share a prefix; one has two choices, one pauses the others.
std::vector<GenerationRequest> requests_of(unsigned seed) {
  std::vector<GenerationRequest> requests;
  for (unsigned i = 0; i < 3; ++i) {
    auto prompt = prompt_of(20, seed % 5);
    const auto own = prompt_of(9 + static_cast<int>(i), 100 * seed + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    GenerationRequest request{prompt, greedy(), 12, true};
    request.choices = i == 0 ? 2 : 1;
    request.priority = i == 2 ? 1 : 0;
    request.branch_points = {20};
    requests.push_back(std::move(request));
  }
  return requests;
}

// Runs them with the allocation number `failing` of the engine's thread, counted from the first
// event on, failing. Whether it came to that.
bool run_with_failure(EngineService& service, unsigned seed, long failing) {
  bool armed = false;  // engine thread only
  bool read = false;
  long left = kNever;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<int> choices;
  for (GenerationRequest& request : requests_of(seed)) {
    choices.push_back(request.choices);
    listeners.push_back(Listener::make([&](const GenerationEvent&) {
      if (!std::exchange(armed, true)) fail_allocation(failing);
    }));
    const auto id = service.submit(std::move(request), Listener::handler(listeners.back()));
    EXPECT_TRUE(std::holds_alternative<GenerationId>(id));
  }
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    if (!listeners[i]->wait()) ADD_FAILURE() << "no end, with allocation " << failing << " failing";
    SCOPED_TRACE(fmt::format("allocation {} failing", failing));
    expect_documented_order(listeners[i]->events(), choices[i]);
  }
  // One more request reads the countdown and takes it away.
  const auto last = Listener::make([&](const GenerationEvent&) {
    if (std::exchange(read, true)) return;
    left = allocations_until_failure();
    fail_allocation(kNever);
  });
  const auto answer = service.submit({{1, 2, 3}, greedy(), 2, true}, Listener::handler(last));
  EXPECT_TRUE(std::holds_alternative<GenerationId>(answer));
  EXPECT_TRUE(last->wait());
  return left < 0;
}

TEST(EngineAllocation, AFailureAnywhereInAStepEndsNoMoreThanThatStep) {
  auto started = EngineService::start(service_options());
  ASSERT_TRUE(started.ok()) << started.error().message;
  EngineService& service = **started;
  const auto prompt = prompt_of(40, 7);
  const auto expected = solo(service_options().engine, prompt, 20);
  long failing = 0;
  int steps = 0;
  bool failed = true;
  // Every one of the first; then with growing strides, to the end of the run.
  for (; failed && !::testing::Test::HasFailure(); failing += 1 + failing / 16, ++steps) {
    if (tests::kSanitized && steps % tests::kSanitizedShare != 0) continue;
    failed = run_with_failure(service, static_cast<unsigned>(steps), failing);
    if (steps % 4 != 0) continue;  // otherwise the cache goes on with what it has
    expect_start_values(service);
  }
  EXPECT_GT(steps, 60);
  EXPECT_FALSE(service.failure().has_value());
  const auto listener = Listener::make();
  const auto id = service.submit({prompt, greedy(), 20, true}, Listener::handler(listener));
  ASSERT_TRUE(std::holds_alternative<GenerationId>(id));
  ASSERT_TRUE(listener->wait());
  EXPECT_EQ(listener->output(), expected);
  expect_start_values(service);
}

// The same with a step launched behind the one that is taken, which the service has on a GPU.
TEST(EngineAllocation, AFailureWithAStepAheadEndsWhatRunsAndNothingStaysHeld) {
  EngineOptions options = small_options();
  options.threads = 1;
  const auto prompt = prompt_of(20, 3);
  const auto expected = solo(options, prompt, 20);
  const auto engine = make_engine(options);
  SchedulerOptions scheduling;
  scheduling.overlap = Overlap::always;
  int failures = 0;
  bool reached = true;
  for (long failing = 0; reached; failing += 1 + failing / 16) {
    Scheduler scheduler(*engine, scheduling);
    for (unsigned i = 0; i < 3; ++i) {
      GenerationRequest request{prompt_of(20, i), greedy(), 25, true};
      if (i == 1) request.sampling.temperature = 1, request.sampling.top_p = 0.9;
      if (i == 2) request.sampling.frequency_penalty = 0.5;
      if (i == 2) request.top_logprobs = 2;
      ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    }
    while (engine->launched().empty()) ASSERT_TRUE(scheduler.step().ok());
    fail_allocation(failing);
    bool failed = false;
    while (!failed && !scheduler.idle()) {
      try {
        failed = !scheduler.step().ok();
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    }
    reached = allocations_until_failure() < 0;
    fail_allocation(kNever);
    EXPECT_EQ(failed, reached) << "allocation " << failing << " failing";
    failures += failed ? 1 : 0;
    if (failed) {
      static_cast<void>(scheduler.abandon(Error{"no memory"}));
    }
    EXPECT_TRUE(scheduler.idle());
    EXPECT_TRUE(engine->launched().empty());
    expect_all_free(*engine);
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, 60);
  Scheduler scheduler(*engine, scheduling);
  ASSERT_TRUE(scheduler.submit({prompt, greedy(), 20, true}).ok());
  EXPECT_EQ(run_all(scheduler).front().output, expected);
}

TEST(EngineAllocation, CancellingAndStoppingNeedNoMemory) {
  ServiceOptions options = service_options();
  options.engine.context_length = 1024;  // long enough to be still running
  auto started = EngineService::start(options);
  ASSERT_TRUE(started.ok()) << started.error().message;
  EngineService& service = **started;
  for (const bool cancels : {true, false}) {
    const auto listener = Listener::make();
    GenerationRequest request{{1, 2, 3}, greedy(), 1000, true};
    request.choices = 2;
    const auto answer = service.submit(std::move(request), Listener::handler(listener));
    ASSERT_TRUE(std::holds_alternative<GenerationId>(answer));
    const auto id = std::get<GenerationId>(answer);
    listener->wait_for_tokens(4);
    fail_allocation(0);
    if (cancels) {
      service.cancel(id);
    } else {
      service.stop_choice(id, 1, 1);
      service.stop_choice(id, 0, 1);
    }
    EXPECT_EQ(allocations_until_failure(), 0);
    fail_allocation(kNever);
    ASSERT_TRUE(listener->wait());
    const auto reason = cancels ? FinishReason::cancelled : FinishReason::stop;
    EXPECT_EQ(listener->end(0).reason, reason);
    EXPECT_EQ(listener->end(1).reason, reason);
  }
  expect_start_values(service);
}

// Seven requests, one after the other. The first, of a text of its own, waits for the last to be
// there, so that all are queued when it ends. From the next one's first event on, and again
// whenever one ends with an error, the allocation number `failing` fails. How many ended with
// errors before the engine was given up; none if it was not.
std::optional<int> errors_before_giving_up(long failing) {
  ServiceOptions options = service_options();
  options.engine.max_running_requests = 1;
  auto service = EngineService::start(options);
  if (!service.ok()) {
    ADD_FAILURE() << service.error().message;
    return std::nullopt;
  }
  int errors = 0;  // engine thread only, until the last end is heard
  bool armed = false;
  std::promise<void> submitted;
  const std::shared_future<void> all_submitted = submitted.get_future();
  std::vector<std::shared_ptr<Listener>> listeners;
  for (int i = 0; i < 7; ++i) {
    listeners.push_back(Listener::make([&, i](const GenerationEvent& event) {
      all_submitted.wait();
      if (i == 0) return;
      const auto* end = std::get_if<ChoiceFinished>(&event);
      const bool failed = end != nullptr && end->reason == FinishReason::error;
      errors += failed ? 1 : 0;
      if (!std::exchange(armed, true) || failed) fail_allocation(failing);
    }));
    const auto id = (*service)->submit({prompt_of(5, i == 0 ? 2 : 1), greedy(), 8, true},
                                       Listener::handler(listeners.back()));
    EXPECT_TRUE(std::holds_alternative<GenerationId>(id));
  }
  submitted.set_value();
  for (const auto& listener : listeners) EXPECT_TRUE(listener->wait());
  if (!(*service)->failure()) return std::nullopt;
  const auto refused = (*service)->submit({{1, 2, 3}, greedy(), 2, true}, {});
  const auto* refusal = std::get_if<Refusal>(&refused);
  EXPECT_TRUE(refusal != nullptr && refusal->kind == Refusal::Kind::failed);
  EXPECT_EQ(listeners.back()->end().reason, FinishReason::cancelled);
  return errors;
}

// Where the allocation fails decides whether it is in a step; among so many there are those that
// make every step fail.
TEST(EngineAllocation, TheEngineIsGivenUpAfterThreeStepsThatFailOneAfterTheOther) {
  int given_up = 0;
  for (long failing = 0; failing < 60; ++failing) {
    const auto errors = errors_before_giving_up(failing);
    if (!errors) continue;
    ++given_up;
    EXPECT_EQ(*errors, 3) << "allocation " << failing << " failing";
  }
  EXPECT_GT(given_up, 0);
}

TEST(EngineAllocation, AFailureWhileARequestIsHandedOverRefusesItAndChangesNothing) {
  auto started = EngineService::start(service_options());
  ASSERT_TRUE(started.ok()) << started.error().message;
  EngineService& service = **started;
  int refused = 0;
  for (long failing = 0;; ++failing) {
    const auto listener = Listener::make();
    auto handler = Listener::handler(listener);
    GenerationRequest request = requests_of(1).front();
    fail_allocation(failing);
    auto answer = service.submit(std::move(request), std::move(handler));
    const bool failed = allocations_until_failure() < 0;
    fail_allocation(kNever);
    if (!failed) {
      ASSERT_TRUE(std::holds_alternative<GenerationId>(answer));
      ASSERT_TRUE(listener->wait());
      break;
    }
    if (const auto* refusal = std::get_if<Refusal>(&answer)) {
      ++refused;
      EXPECT_EQ(refusal->kind, Refusal::Kind::queue_full);
      EXPECT_TRUE(listener->events().empty());
    } else {
      ASSERT_TRUE(listener->wait());
    }
    EXPECT_TRUE(service.idle());
  }
  EXPECT_GT(refused, 2);
  expect_start_values(service);
}

}  // namespace
}  // namespace replayssm
