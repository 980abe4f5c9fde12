// The engine on its thread: what callers on any thread are told, and when.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <thread>

#include "listener.h"
#include "small_engine.h"
#include "source_dir.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

ServiceOptions small_service() {
  ServiceOptions options;
  options.engine = small_options();
  options.track_interval = 32;
  return options;
}

std::unique_ptr<EngineService> start(const ServiceOptions& options) {
  auto service = EngineService::start(options);
  if (!service) ADD_FAILURE() << service.error().message;
  return service ? std::move(*service) : nullptr;
}

std::vector<TokenId> prompt_of(const EngineService& service, int tokens, unsigned long seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt;
  for (int i = 0; i < tokens; ++i) {
    prompt.push_back(
        static_cast<TokenId>(random() % static_cast<unsigned long>(service.config().vocab_size)));
  }
  return prompt;
}

GenerationRequest request_of(std::vector<TokenId> prompt, int tokens) {
  return {std::move(prompt), greedy(), tokens, true};
}

GenerationId submit(EngineService& service, GenerationRequest request,
                    const std::shared_ptr<Listener>& listener) {
  auto id = service.submit(std::move(request), Listener::handler(listener));
  if (auto* refusal = std::get_if<Refusal>(&id)) {
    ADD_FAILURE() << refusal->message;
    return {};
  }
  return std::get<GenerationId>(id);
}

TEST(EngineService, EventsComeInTheDocumentedOrder) {
  const auto service = start(small_service());
  for (const int choices : {1, 3}) {
    for (const bool logprobs : {false, true}) {
      GenerationRequest request = request_of(prompt_of(*service, 90, 1), 12);
      request.choices = choices;
      request.sampling.temperature = 1;
      request.ignore_eos = false;
      request.prompt_logprobs = logprobs;
      request.top_logprobs = 2;
      const auto listener = Listener::make();
      submit(*service, request, listener);
      ASSERT_TRUE(listener->wait());
      expect_documented_order(listener->events(), choices);
      for (const GenerationEvent& event : listener->events()) {
        const auto* prompt = std::get_if<PromptEvaluated>(&event);
        if (prompt == nullptr) continue;
        EXPECT_EQ(prompt->logprobs.size(), logprobs ? 90u : 0u);
      }
      EXPECT_EQ(listener->finished().prompt_tokens, 90);
    }
  }
  expect_start_values(*service);
}

TEST(EngineService, EventsOfARequestThatEndsEarlyComeInTheDocumentedOrderToo) {
  ServiceOptions options = small_service();
  options.engine.step_tokens = 16;
  options.engine.logit_rows = 4;
  const auto service = start(options);
  for (const int tokens : {0, 1, 5}) {  // before the first token, after it, later
    GenerationRequest request = request_of(prompt_of(*service, 100, 1), 150);
    request.choices = 2;
    const auto listener = Listener::make();
    const GenerationId id = submit(*service, request, listener);
    listener->wait_for_tokens(tokens);
    service->cancel(id);
    ASSERT_TRUE(listener->wait());
    expect_documented_order(listener->events(), 2);
    EXPECT_EQ(listener->end(0).reason, FinishReason::cancelled);
    EXPECT_EQ(listener->end(1).reason, FinishReason::cancelled);
    service->cancel(id);  // and once more, and somebody who never was
    service->cancel(GenerationId{1 << 20});
    service->stop_choice(id, 7, 3);
  }
  expect_start_values(*service);
}

TEST(EngineService, AStopEndsOneChoiceAfterTheTokensItNames) {
  const auto service = start(small_service());
  GenerationRequest request = request_of(prompt_of(*service, 20, 1), 120);
  request.choices = 2;
  const auto listener = Listener::make();
  const GenerationId id = submit(*service, request, listener);
  listener->wait_for_tokens(12);
  service->stop_choice(id, 1, 4);
  ASSERT_TRUE(listener->wait());
  expect_documented_order(listener->events(), 2);
  EXPECT_EQ(listener->end(0).reason, FinishReason::length);
  EXPECT_EQ(listener->end(0).completion_tokens, 120);
  EXPECT_EQ(listener->end(1).reason, FinishReason::stop);
  EXPECT_EQ(listener->end(1).completion_tokens, 4);
  EXPECT_FALSE(listener->end(1).stop_token.has_value());
  expect_start_values(*service);
}

TEST(EngineService, RefusalsNameTheFieldAndChangeNothing) {
  const auto service = start(small_service());
  const auto refusal_of = [&](GenerationRequest request) {
    const auto answer = service->submit(std::move(request), [](GenerationEvent) {
      ADD_FAILURE() << "the handler of a refused request is not called";
    });
    if (std::holds_alternative<GenerationId>(answer)) {
      ADD_FAILURE() << "accepted";
      return Refusal{};
    }
    return std::get<Refusal>(answer);
  };
  const auto prompt = prompt_of(*service, 20, 1);
  const Refusal empty = refusal_of(request_of({}, 1));
  EXPECT_EQ(empty.kind, Refusal::Kind::invalid);
  EXPECT_EQ(empty.field, "prompt");
  const Refusal foreign = refusal_of(request_of({1, service->config().vocab_size}, 1));
  EXPECT_EQ(foreign.kind, Refusal::Kind::invalid);
  EXPECT_EQ(foreign.field, "prompt");
  const Refusal long_prompt = refusal_of(request_of(prompt_of(*service, 257, 1), 1));
  EXPECT_EQ(long_prompt.kind, Refusal::Kind::too_long);
  EXPECT_EQ(long_prompt.field, "prompt");
  for (const int tokens : {237, std::numeric_limits<int>::max()}) {
    const Refusal long_output = refusal_of(request_of(prompt, tokens));
    EXPECT_EQ(long_output.kind, Refusal::Kind::too_long);
    EXPECT_EQ(long_output.field, "max_tokens");
    EXPECT_NE(long_output.message.find("236"), std::string::npos) << long_output.message;
  }
  const Refusal nothing = refusal_of(request_of(prompt, 0));
  EXPECT_EQ(nothing.kind, Refusal::Kind::invalid);
  EXPECT_EQ(nothing.field, "max_tokens");
  for (const int choices : {0, 5, std::numeric_limits<int>::max()}) {
    GenerationRequest many = request_of(prompt, 1);
    many.choices = choices;
    const Refusal refused = refusal_of(many);
    EXPECT_EQ(refused.kind, Refusal::Kind::invalid);
    EXPECT_EQ(refused.field, "n");
  }
  EXPECT_EQ(service->state().counters.requests_refused, 9);
  EXPECT_EQ(service->state().counters.prompt_tokens, 0);
  expect_start_values(*service);
}

TEST(EngineService, AFullQueueRefusesAndIsOpenAgainWhenSomebodyHasEnded) {
  ServiceOptions options = small_service();
  options.engine.max_running_requests = 2;
  options.max_queued_requests = 3;
  const auto service = start(options);
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<GenerationId> ids;
  for (unsigned i = 0; i < 5; ++i) {
    listeners.push_back(Listener::make());
    ids.push_back(submit(*service, request_of(prompt_of(*service, 9, i), 200), listeners.back()));
  }
  const auto refused = service->submit(request_of({1, 2, 3}, 1), [](GenerationEvent) {});
  ASSERT_TRUE(std::holds_alternative<Refusal>(refused));
  EXPECT_EQ(std::get<Refusal>(refused).kind, Refusal::Kind::queue_full);
  EXPECT_NE(std::get<Refusal>(refused).message.find("--max-queued-requests"), std::string::npos);
  service->cancel(ids[4]);
  ASSERT_TRUE(listeners[4]->wait());
  listeners.push_back(Listener::make());
  submit(*service, request_of({1, 2, 3}, 1), listeners.back());
  for (const auto& listener : listeners) ASSERT_TRUE(listener->wait());
  expect_start_values(*service);
}

TEST(EngineService, WhileItDrainsWhatRunsGoesOnAndNothingNewComesIn) {
  const auto service = start(small_service());
  const auto listener = Listener::make();
  submit(*service, request_of(prompt_of(*service, 9, 1), 150), listener);
  service->drain();
  const auto refused = service->submit(request_of({1, 2, 3}, 1), [](GenerationEvent) {});
  ASSERT_TRUE(std::holds_alternative<Refusal>(refused));
  EXPECT_EQ(std::get<Refusal>(refused).kind, Refusal::Kind::draining);
  ASSERT_TRUE(listener->wait());
  EXPECT_EQ(listener->end().reason, FinishReason::length);
  expect_start_values(*service);
}

TEST(EngineService, DestructionEndsWhatIsInFlightWithEveryEvent) {
  for (const int wait_tokens : {0, 3}) {
    auto service = start(small_service());
    std::vector<std::shared_ptr<Listener>> listeners;
    for (unsigned i = 0; i < 12; ++i) {
      GenerationRequest request = request_of(prompt_of(*service, 60, i), 190);
      request.choices = i % 3 == 0 ? 2 : 1;
      listeners.push_back(Listener::make());
      submit(*service, std::move(request), listeners.back());
    }
    listeners.front()->wait_for_tokens(wait_tokens);
    service.reset();
    for (std::size_t i = 0; i < listeners.size(); ++i) {
      expect_documented_order(listeners[i]->events(), i % 3 == 0 ? 2 : 1);
      EXPECT_EQ(listeners[i].use_count(), 1) << "the handler is destroyed";
    }
    EXPECT_EQ(listeners.back()->end().reason, FinishReason::cancelled);
  }
}

TEST(EngineService, OptionsOutOfRangeAreRefusedByTheNameOfTheirFlag) {
  const auto message_of = [](const auto& change) {
    ServiceOptions options = small_service();
    change(options);
    const auto service = EngineService::start(options);
    return service ? std::string("accepted") : service.error().message;
  };
  for (const int interval : {0, -16, 24, 255}) {
    EXPECT_EQ(message_of([&](ServiceOptions& o) {
                o.track_interval = interval;
              }).find("--mamba-track-interval"),
              0u)
        << interval;
  }
  EXPECT_EQ(message_of([](ServiceOptions& o) {
              o.max_queued_requests = -1;
            }).find("--max-queued-requests"),
            0u);
  EXPECT_EQ(message_of([](ServiceOptions& o) { o.host_cache_bytes = -1; }).find("--hicache-size"),
            0u);
}

// A handler that throws loses its own generation, nobody else's.
TEST(EngineService, AHandlerThatThrowsEndsItsGenerationOnly) {
  const auto service = start(small_service());
  const auto prompt = prompt_of(*service, 20, 1);
  const auto expected = solo(small_service().engine, prompt, 60);
  std::atomic<int> after{0};
  const auto thrower = Listener::make([&, thrown = false](const GenerationEvent& event) mutable {
    if (thrown) ++after;
    if (std::holds_alternative<OutputToken>(event) && !std::exchange(thrown, true)) {
      throw std::runtime_error("no");
    }
  });
  const auto neighbour = Listener::make();
  submit(*service, request_of(prompt_of(*service, 10, 2), 200), thrower);
  submit(*service, request_of(prompt, 60), neighbour);
  ASSERT_TRUE(thrower->wait());
  ASSERT_TRUE(neighbour->wait());
  EXPECT_EQ(thrower->end().reason, FinishReason::cancelled);
  EXPECT_EQ(after.load(), 2) << "the end of the choice and of the generation";
  EXPECT_EQ(neighbour->output(), expected);
  expect_start_values(*service);
}

// The embedding of one token is not finite: whoever has it in the prompt gets an error, the others
// what they get alone.
TEST(EngineService, LogitsThatAreNotFiniteEndOneRequestOnly) {
  TestCheckpoint checkpoint("ratio3_bfloat16_flat_untied");
  constexpr TokenId kPoisoned = 5;
  checkpoint.poison_embedding(kPoisoned);
  ServiceOptions options = small_service();
  options.engine.model_path = checkpoint.path();
  const auto service = start(options);
  ASSERT_TRUE(service);
  const auto clean = [&](unsigned seed) {
    auto prompt = prompt_of(*service, 40, seed);
    std::replace(prompt.begin(), prompt.end(), kPoisoned, kPoisoned + 1);
    return prompt;
  };
  auto poisoned = clean(1);
  poisoned[20] = kPoisoned;
  for (int round = 0; round < 2; ++round) {  // and the same again, with what the cache has now
    const auto victim = Listener::make();
    std::vector<std::shared_ptr<Listener>> others;
    submit(*service, request_of(poisoned, 30), victim);
    for (unsigned i = 0; i < 3; ++i) {
      others.push_back(Listener::make());
      GenerationRequest request = request_of(i == 2 ? clean(1) : clean(i + 2), 30);
      request.logit_bias = {{kPoisoned, -1e9F}};
      submit(*service, request, others.back());
    }
    ASSERT_TRUE(victim->wait());
    EXPECT_EQ(victim->end().reason, FinishReason::error);
    EXPECT_NE(victim->end().error->message.find("finite"), std::string::npos);
    EXPECT_EQ(victim->finished().cached_tokens, 0) << "what has failed is not kept";
    for (const auto& other : others) {
      ASSERT_TRUE(other->wait());
      EXPECT_EQ(other->end().reason, FinishReason::length);
    }
    EXPECT_EQ(service->state().counters.nonfinite_logits, round + 1);
  }
  EXPECT_FALSE(service->failure().has_value());
  expect_start_values(*service);
}

// Everything at once, from several threads. What it shows is for ThreadSanitizer to find; here,
// that everybody gets an end and nothing is left.
TEST(EngineService, ThreadsMaySubmitCancelStopFlushAndLookAtOnce) {
  ServiceOptions options = small_service();
  options.policy = SchedulePolicy::priority;
  options.host_cache_bytes = 1 << 22;
  options.max_queued_requests = 20;
  const auto service = start(options);
  std::atomic<int> newest{-1};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < tests::rounds(60); ++i) {
        GenerationRequest request =
            request_of(prompt_of(*service, 1 + static_cast<int>(random() % 70), random() % 4), 8);
        request.choices = 1 + static_cast<int>(random() % 3);
        request.priority = static_cast<int>(random() % 3);
        const auto listener = Listener::make();
        const int choices = request.choices;
        const auto id = service->submit(std::move(request), Listener::handler(listener));
        if (std::holds_alternative<Refusal>(id)) continue;
        newest = std::get<GenerationId>(id).value;
        if (random() % 2 == 0) continue;  // gone, as a client may be
        if (!listener->wait()) ADD_FAILURE();
        expect_documented_order(listener->events(), choices);
      }
    });
  }
  threads.emplace_back([&] {
    std::mt19937 random(9);
    while (!over) {
      const auto id = GenerationId{newest.load() - static_cast<int>(random() % 4)};
      if (random() % 4 == 0) service->cancel(id);
      service->stop_choice(id, static_cast<int>(random() % 3), static_cast<int>(random() % 5));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  threads.emplace_back([&] {
    while (!over) {
      service->flush_cache();
      const EngineState state = service->state();
      EXPECT_LE(state.rows.used, state.rows.total);
      EXPECT_LE(state.slots_reserved, state.slots.used);
      EXPECT_FALSE(service->failure().has_value());
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  });
  for (std::size_t t = 0; t < 3; ++t) threads[t].join();
  over = true;
  for (std::size_t t = 3; t < threads.size(); ++t) threads[t].join();
  service->drain();
  while (!service->idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect_start_values(*service);
}

// A thousand requests, 64 of them at any time, on the embedded model: shared prefixes, several
// choices, clients that cancel and texts that stop.
TEST(EngineService, AThousandRequestsAtConcurrency64EndWithEveryCounterAtItsStartValue) {
  ServiceOptions options;
  options.engine.model_path = source_dir() / "models/tiny";
  options.engine.max_running_requests = 24;
  options.engine.context_length = 128;
  options.engine.poison = Poison::on;
  options.engine.threads = tests::kThreadSanitizer ? 3 : 0;
  options.policy = SchedulePolicy::priority;
  options.host_cache_bytes = 8 << 20;
  options.track_interval = 16;
  const auto service = start(options);
  ASSERT_TRUE(service);
  const int requests = tests::rounds(1000);
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  std::atomic<int> faults{0};
  std::mt19937 random(1);
  std::int64_t prompt_tokens = 0;
  for (int i = 0; i < requests; ++i) {
    {
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, std::chrono::minutes(2), [&] { return running < 64; }));
      ++running;
    }
    auto prompt = prompt_of(*service, 12 * static_cast<int>(random() % 3), random() % 3);
    const auto own = prompt_of(*service, 1 + static_cast<int>(random() % 12), random());
    prompt.insert(prompt.end(), own.begin(), own.end());
    prompt_tokens += static_cast<std::int64_t>(prompt.size());
    GenerationRequest request = request_of(prompt, 1 + static_cast<int>(random() % 6));
    request.choices = random() % 16 == 0 ? 3 : 1;
    request.priority = random() % 20 == 0 ? 1 : 0;
    request.ignore_eos = random() % 2 == 0;
    request.sampling.temperature = random() % 2 == 0 ? 1 : 0;
    const auto id = service->submit(request, [&](GenerationEvent event) {
      const auto* end = std::get_if<ChoiceFinished>(&event);
      if (end != nullptr && end->reason == FinishReason::error) ++faults;
      if (!std::holds_alternative<GenerationFinished>(event)) return;
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_all();
    });
    ASSERT_TRUE(std::holds_alternative<GenerationId>(id));
    if (random() % 12 == 0) service->cancel(std::get<GenerationId>(id));
    if (random() % 12 == 0) service->stop_choice(std::get<GenerationId>(id), 0, 1);
  }
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::minutes(2), [&] { return running == 0; }));
  lock.unlock();
  EXPECT_EQ(faults.load(), 0);
  const EngineCounters counters = service->state().counters;
  EXPECT_EQ(counters.prompt_tokens, prompt_tokens);
  EXPECT_GT(counters.prefix_hits, 0);
  EXPECT_EQ(counters.end_to_end_latency.count(), requests);
  std::int64_t ended = 0;
  for (const std::int64_t each : counters.requests_finished) ended += each;
  EXPECT_EQ(ended, requests);
  expect_start_values(*service);
}

}  // namespace
}  // namespace replayssm
