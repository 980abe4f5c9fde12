// Steps that are launched before the one before them is taken, on the CPU: nothing that a request
// gets may differ.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "cached_engine.h"
#include "grammar/grammar.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

// Everything that a user sees of a choice.
struct Seen {
  std::vector<TokenId> streamed;
  std::vector<double> logprobs;
  FinishReason reason = FinishReason::error;
  std::optional<TokenId> stop_token;
  std::vector<TokenId> output;
  int cached = 0;
  std::int64_t tokens_evaluated = 0, folds = 0;
  int completion_tokens = 0;
  bool operator==(const Seen&) const = default;
};
using All = std::map<std::pair<int, int>, Seen>;

struct Served {
  All seen;
  std::int64_t ahead = 0;  // steps that were launched ahead
  std::int64_t steps = 0;
};

SchedulerOptions scheduling(bool overlap) {
  SchedulerOptions options;
  options.overlap = overlap ? Overlap::always : Overlap::off;
  return options;
}

// A JSON string of ten letters; a token is a byte.
std::shared_ptr<const grammar::ReasoningGate> words_of_ten() {
  constexpr TokenId kEnd = 510;  // the small model's end token
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  tokens.resize(512);
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const auto trie = std::make_shared<const grammar::TokenTrie>(views, std::span(&kEnd, 1));
  const auto schema = nlohmann::ordered_json::parse(R"({"pattern": "^[a-z]{10}$"})");
  return std::make_shared<const grammar::ReasoningGate>(
      std::make_shared<grammar::ConstrainedTokens>(grammar::Grammar::from_schema(schema).value(),
                                                   trie),
      grammar::ReasoningGate::Start::in_answer, grammar::ReasoningGate::Tag{});
}

// Steps until all is done; `between` is called before each step with its number.
Served serve(
    Engine& engine, Scheduler& scheduler, const std::function<void(int)>& between = [](int) {}) {
  Served result;
  for (int n = 0; n == 0 || !scheduler.idle(); ++n) {
    between(n);
    auto events = scheduler.step();
    if (!events.ok()) {
      ADD_FAILURE() << events.error().message;
      break;
    }
    result.ahead += engine.launched().empty() ? 0 : 1;
    for (auto& token : events->tokens) {
      Seen& seen = result.seen[{token.request.value, token.choice}];
      seen.streamed.push_back(token.token);
      if (!token.logprobs) continue;
      seen.logprobs.push_back(token.logprobs->logprob);
      for (const auto& top : token.logprobs->top) seen.logprobs.push_back(top.logprob);
    }
    for (Finished& finished : events->finished) {
      Seen& seen = result.seen[{finished.request.value, finished.choice}];
      seen.reason = finished.reason;
      seen.stop_token = finished.stop_token;
      seen.output = finished.output;
      seen.cached = finished.reused_tokens;
      seen.tokens_evaluated = finished.counters.tokens_evaluated;
      seen.folds = finished.counters.folds;
      if (finished.generation) seen.completion_tokens = finished.generation->completion_tokens;
      finished.sequence = Sequence{};
    }
  }
  result.steps = scheduler.counters().steps;
  EXPECT_TRUE(engine.launched().empty());
  return result;
}

GenerationRequest sampled(const Engine& engine, int prompt, unsigned seed, int tokens) {
  SamplingParams params;
  params.temperature = 1.5;
  params.seed = seed;
  if (seed % 3 == 1) params.top_k = 20;
  if (seed % 3 == 2) params.top_p = 0.9;
  return {random_prompt(engine, prompt, seed), params, tokens, true};
}

TEST(Overlap, GivesEveryRequestWhatItGetsWithout) {
  for (const char* model : kModelKinds) {
    EngineOptions options = small_options();
    options.model_path = small_checkpoint(model);
    Served runs[2];
    for (const bool overlap : {false, true}) {
      const auto engine = make_engine(options);
      Scheduler scheduler(*engine, scheduling(overlap));
      for (unsigned i = 0; i < 9; ++i) {
        GenerationRequest request = sampled(*engine, 3 + 11 * static_cast<int>(i), i, 40);
        if (i % 2 == 0) request.sampling.temperature = 0;
        if (i == 3) request.top_logprobs = 4;
        if (i == 4) request.logit_bias = {{7, 3.0f}};
        if (i == 5) request.min_tokens = 20, request.ignore_eos = false;
        if (i == 6) request.choices = 3;
        ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
      }
      runs[overlap ? 1 : 0] = serve(*engine, scheduler);
      expect_all_free(*engine);
    }
    EXPECT_EQ(runs[0].seen, runs[1].seen);
    EXPECT_EQ(runs[0].ahead, 0);
    EXPECT_GT(runs[1].ahead, 50) << "of " << runs[1].steps;
  }
}

// A stop token comes when the next step has been launched; what that evaluated is taken back.
TEST(Overlap, ARowThatEndsLeavesNothingOfTheStepAhead) {
  for (const int most_steps : {10, 16, 30}) {
    Served runs[2];
    std::vector<TokenId> next[2];
    for (const bool overlap : {false, true}) {
      CachedEngine cached(cached_options());
      SchedulerOptions options = scheduling(overlap);
      options.cache = &cached.cache;
      Scheduler scheduler(*cached.engine, options);
      // Every token number `most_steps` of what is sampled ends its request.
      std::vector<GenerationRequest> requests;
      for (unsigned i = 0; i < 4; ++i) {
        GenerationRequest request =
            sampled(*cached.engine, 20 + static_cast<int>(i), 60 + i, most_steps);
        Scheduler plain(*cached.engine);
        ASSERT_TRUE(plain.submit(request).ok());
        auto output = run_all(plain).front().output;
        request.stop_token_ids = {output.back()};
        request.max_tokens = 60;
        requests.push_back(request);
      }
      for (const auto& request : requests) ASSERT_TRUE(scheduler.submit(request).ok());
      runs[overlap ? 1 : 0] = serve(*cached.engine, scheduler);
      // What the cache was given serves a prompt that goes on from there.
      std::vector<TokenId> prompt = requests.front().prompt;
      const Seen& first = runs[overlap ? 1 : 0].seen.begin()->second;
      prompt.insert(prompt.end(), first.output.begin(), first.output.end());
      prompt.push_back(5);
      ASSERT_TRUE(scheduler.submit({prompt, greedy(), 12, true}).ok());
      const Served more = serve(*cached.engine, scheduler);
      next[overlap ? 1 : 0] = more.seen.begin()->second.output;
      EXPECT_GT(more.seen.begin()->second.cached, 0);
      EXPECT_EQ(next[overlap ? 1 : 0], solo(small_options(), prompt, 12));
      cached.scheduler.reset();
      cached.cache.clear();
      expect_all_free(*cached.engine);
    }
    EXPECT_EQ(runs[0].seen, runs[1].seen) << most_steps;
    // All steps but the prompts' and the last: also those behind one in which a row has ended.
    EXPECT_GE(runs[1].ahead, runs[1].steps - 5);
    for (const auto& [id, seen] : runs[1].seen) {
      EXPECT_EQ(seen.reason, FinishReason::stop);
    }
  }
}

TEST(Overlap, CancelledAndStoppedChoicesEndWithTheStepThatRuns) {
  const auto engine = make_engine(small_options());
  Scheduler scheduler(*engine, scheduling(true));
  const auto a = scheduler.submit(sampled(*engine, 20, 1, 100)).value();
  const auto b = scheduler.submit(sampled(*engine, 30, 2, 100)).value();
  scheduler.submit(sampled(*engine, 40, 3, 100)).value();
  int cancelled = 0;
  const Served result = serve(*engine, scheduler, [&](int n) {
    if (n == 20) {
      EXPECT_EQ(engine->launched().size(), 3u) << "the next step of all of them";
      scheduler.cancel(a);
      scheduler.stop_choice(b, 0, 5);
    }
    if (n == 22) {
      EXPECT_FALSE(scheduler.has(a, 0));
      EXPECT_FALSE(scheduler.has(b, 0));
      EXPECT_EQ(scheduler.running(), 1);
      ++cancelled;
    }
  });
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(result.seen.at({a.value, 0}).reason, FinishReason::cancelled);
  EXPECT_EQ(result.seen.at({b.value, 0}).reason, FinishReason::stop);
  EXPECT_EQ(result.seen.at({b.value, 0}).output.size(), 5u);
  EXPECT_EQ(result.seen.rbegin()->second.output.size(), 100u);
  expect_all_free(*engine);
}

// What runs is given up while a step is launched and not taken: nothing of it is held, and the
// engine serves the next as ever.
TEST(Overlap, GivingUpWithAStepLaunchedLeavesNothingOfIt) {
  const EngineOptions options = small_options();
  const auto engine = make_engine(options);
  const auto prompt = random_prompt(*engine, 20, 7);
  for (const int steps : {3, 11, 18}) {
    Scheduler scheduler(*engine, scheduling(true));
    for (unsigned i = 0; i < 3; ++i) {
      ASSERT_TRUE(scheduler.submit(sampled(*engine, 20, i, 60)).ok());
    }
    for (int n = 0; n < steps; ++n) ASSERT_TRUE(scheduler.step().ok());
    ASSERT_FALSE(engine->launched().empty());
    StepEvents events = scheduler.abandon(Error{"given up"});
    EXPECT_EQ(events.finished.size(), 3u);
    for (const Finished& finished : events.finished) {
      EXPECT_EQ(finished.reason, FinishReason::error);
      EXPECT_EQ(finished.error->message, "given up");
    }
    EXPECT_TRUE(engine->launched().empty());
    EXPECT_TRUE(scheduler.idle());
    expect_all_free(*engine);
    ASSERT_TRUE(scheduler.submit({prompt, greedy(), 20, true}).ok());
    EXPECT_EQ(serve(*engine, scheduler).seen.begin()->second.output, solo(options, prompt, 20));
    expect_all_free(*engine);
  }
}

// The embedding of one token is not finite. Whoever puts it out gets an error with the step that
// evaluates it, when the one behind is launched; the others get what they get otherwise.
TEST(Overlap, LogitsThatAreNotFiniteEndTheirRowAloneWithAStepLaunchedBehind) {
  constexpr TokenId kPoisoned = 5;
  TestCheckpoint checkpoint("ratio3_bfloat16_flat_untied");
  checkpoint.poison_embedding(kPoisoned);
  EngineOptions options = small_options();
  options.model_path = checkpoint.path();
  Served runs[2];
  for (const bool overlap : {false, true}) {
    const auto engine = make_engine(options);
    Scheduler scheduler(*engine, scheduling(overlap));
    std::vector<bool> goes_on;  // by row of the step behind the one that failed
    for (unsigned i = 0; i < 3; ++i) {
      GenerationRequest request = sampled(*engine, 20, i, 30);
      std::replace(request.prompt.begin(), request.prompt.end(), kPoisoned, kPoisoned + 1);
      request.logit_bias = {{kPoisoned, i == 1 ? 1e9F : -1e9F}};
      ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    }
    runs[overlap ? 1 : 0] = serve(*engine, scheduler, [&](int n) {
      // The prompts' step came first.
      if (n != 2) return;
      for (const StepRow& row : engine->launched()) goes_on.push_back(row.sequence != nullptr);
    });
    EXPECT_EQ(goes_on, overlap ? std::vector<bool>({true, false, true}) : std::vector<bool>());
    EXPECT_EQ(scheduler.counters().nonfinite_logits, 1);
    expect_all_free(*engine);
  }
  EXPECT_EQ(runs[0].seen, runs[1].seen);
  const auto& seen = runs[1].seen;
  EXPECT_EQ(seen.at({1, 0}).reason, FinishReason::error);
  EXPECT_EQ(seen.at({1, 0}).streamed, std::vector<TokenId>{kPoisoned});
  for (const int other : {0, 2}) EXPECT_EQ(seen.at({other, 0}).output.size(), 30u);
}

// Penalties and constraints ask for the token before: the step ahead is evaluated, and chooses when
// that is known.
TEST(Overlap, AChoiceWaitsForTheTokenThatItAsksFor) {
  Served runs[2];
  for (const bool overlap : {false, true}) {
    const auto engine = make_engine(small_options());
    Scheduler scheduler(*engine, scheduling(overlap));
    for (unsigned i = 0; i < 4; ++i) {
      GenerationRequest request = sampled(*engine, 20, i, 30);
      request.sampling.repetition_penalty = 1.2;
      request.sampling.frequency_penalty = i % 2 == 0 ? 0.5 : 0.0;
      if (i == 3) request.constraint = words_of_ten();
      ASSERT_TRUE(scheduler.submit(request).ok());
    }
    runs[overlap ? 1 : 0] = serve(*engine, scheduler);
  }
  EXPECT_EQ(runs[0].seen, runs[1].seen);
  EXPECT_GT(runs[1].ahead, 20);
  const Seen& constrained = runs[1].seen.rbegin()->second;
  EXPECT_EQ(constrained.reason, FinishReason::stop);
  EXPECT_GE(constrained.output.size(), 12u) << "ten letters between quotation marks";
}

TEST(Overlap, IsOffWhereTheOptionsOrTheRecurrenceSaySo) {
  for (const bool packed : {false, true}) {
    EngineOptions options = small_options();
    options.overlap = packed;
    options.recurrence = packed ? Recurrence::packed : Recurrence::replay;
    const auto engine = make_engine(options);
    Scheduler scheduler(*engine, scheduling(true));
    ASSERT_TRUE(scheduler.submit(sampled(*engine, 20, 3, 30)).ok());
    EXPECT_EQ(serve(*engine, scheduler).ahead, 0);
  }
}

// Requests that come while others decode wait for one step at most.
TEST(Overlap, ANewRequestIsAdmittedBehindTheStepThatIsLaunched) {
  const auto engine = make_engine(small_options());
  Scheduler scheduler(*engine, scheduling(true));
  scheduler.submit(sampled(*engine, 20, 1, 60)).value();
  const Served result = serve(*engine, scheduler, [&](int n) {
    if (n == 10) scheduler.submit(sampled(*engine, 20, 2, 60)).value();
    if (n == 12) {
      EXPECT_EQ(scheduler.running(), 2);
    }
  });
  EXPECT_EQ(result.seen.size(), 2u);
}

// No page is free for the row's next position: the step behind is composed as ever, others give
// way.
TEST(Overlap, PagesThatAreMissingAreFoundByTheNextPlainStep) {
  EngineOptions options = small_options();
  options.context_length = 96;
  options = with_pages(options, 9);
  const auto plain = make_engine(options);
  Served runs[2];
  for (const bool overlap : {false, true}) {
    const auto engine = make_engine(options);
    SchedulerOptions scheduled = scheduling(overlap);
    scheduled.promised_tokens = 1;
    Scheduler scheduler(*engine, scheduled);
    for (unsigned i = 0; i < 3; ++i) {
      ASSERT_TRUE(scheduler.submit(sampled(*engine, 20, i, 60)).ok());
    }
    runs[overlap ? 1 : 0] = serve(*engine, scheduler);
    EXPECT_GT(scheduler.counters().preemptions, 0);
    expect_all_free(*engine);
  }
  for (const auto& [id, seen] : runs[0].seen) {
    EXPECT_EQ(runs[1].seen.at(id).output, seen.output);
    EXPECT_EQ(runs[1].seen.at(id).reason, seen.reason);
  }
}

}  // namespace
}  // namespace replayssm
