#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(Scheduler, ABatchGivesEveryRequestWhatItGetsAlone) {
  for (const char* model : kModelKinds) {
    EngineOptions options = small_options();
    options.model_path = small_checkpoint(model);
    const auto engine = make_engine(options);
    Scheduler scheduler(*engine);
    std::vector<std::vector<TokenId>> prompts;
    for (const int tokens : {1, 5, 16, 17, 40, 64, 65, 100, 3, 33}) {
      prompts.push_back(random_prompt(*engine, tokens, static_cast<unsigned>(tokens)));
      ASSERT_TRUE(scheduler.submit({prompts.back(), greedy(), 20, true}).ok());
    }
    const auto finished = run_all(scheduler);
    ASSERT_EQ(finished.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(finished[i].output, solo(options, prompts[i], 20)) << prompts[i].size();
      EXPECT_EQ(finished[i].reason, FinishReason::length);
      EXPECT_EQ(finished[i].prompt_tokens, static_cast<int>(prompts[i].size()));
    }
  }
}

TEST(Scheduler, SeededSamplingDoesNotDependOnBatchMates) {
  const auto engine = make_engine(small_options());
  SamplingParams params;
  params.seed = 77;
  const auto prompt = random_prompt(*engine, 12, 1);
  const auto alone = [&] {
    Scheduler scheduler(*engine);
    EXPECT_TRUE(scheduler.submit({prompt, params, 20, true}).ok());
    return run_all(scheduler).front().output;
  }();
  Scheduler scheduler(*engine);
  for (const unsigned seed : {1u, 2u}) {
    SamplingParams other;
    other.seed = seed;
    ASSERT_TRUE(scheduler.submit({random_prompt(*engine, 30, seed), other, 25, true}).ok());
  }
  ASSERT_TRUE(scheduler.submit({prompt, params, 20, true}).ok());
  EXPECT_EQ(run_all(scheduler).back().output, alone);
}

TEST(Scheduler, StopsAtAnEndTokenWhichIsNotPartOfTheOutput) {
  const auto engine = make_engine(small_options());
  const auto prompt = random_prompt(*engine, 12, 1);
  const auto& eos = engine->config().eos;
  if (eos.empty()) GTEST_SKIP() << "the checkpoint names no end token";
  // Sampling hot enough meets the end token sooner or later.
  SamplingParams hot;
  hot.temperature = 100;
  hot.seed = 3;
  Scheduler scheduler(*engine);
  Scheduler ignoring(*engine);
  ASSERT_TRUE(scheduler.submit({prompt, hot, 240, false}).ok());
  const Finished stopped = std::move(run_all(scheduler).front());
  ASSERT_TRUE(ignoring.submit({prompt, hot, 240, true}).ok());
  const Finished ignored = std::move(run_all(ignoring).front());
  EXPECT_EQ(ignored.reason, FinishReason::length);
  EXPECT_EQ(ignored.output.size(), 240u);
  const auto end = std::find_if(ignored.output.begin(), ignored.output.end(),
                                [&](TokenId token) { return engine->config().is_eos(token); });
  if (end == ignored.output.end()) {
    EXPECT_EQ(stopped.reason, FinishReason::length);
  } else {
    EXPECT_EQ(stopped.reason, FinishReason::stop);
    EXPECT_EQ(stopped.output, std::vector<TokenId>(ignored.output.begin(), end));
  }
}

TEST(Scheduler, ReportsTokensAndProgressAsTheyCome) {
  const auto engine = make_engine(small_options());
  Scheduler scheduler(*engine);
  const auto id = scheduler.submit({random_prompt(*engine, 150, 1), greedy(), 5, true});
  ASSERT_TRUE(id.ok());
  std::vector<int> progress;
  std::vector<TokenId> tokens;
  std::vector<Finished> finished;
  while (!scheduler.idle()) {
    auto events = scheduler.step();
    ASSERT_TRUE(events.ok());
    for (const auto& step : events->progress) progress.push_back(step.evaluated);
    for (const auto& token : events->tokens) tokens.push_back(token.token);
    for (auto& f : events->finished) finished.push_back(std::move(f));
  }
  EXPECT_EQ(progress, (std::vector{64, 128, 150}));
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished.front().output, tokens);
  EXPECT_EQ(finished.front().counters.tokens_evaluated, 150 + 4) << "the last token is not";
  // 150 tokens: c = 144 after the prompt, 4 more fold nothing.
  EXPECT_EQ(finished.front().counters.folds, 9);
}

TEST(Scheduler, RefusesWhatCouldNeverRunAndChangesNothing) {
  const auto engine = make_engine(small_options());
  Scheduler scheduler(*engine);
  const auto refused = [&](GenerationRequest request) {
    const auto id = scheduler.submit(std::move(request));
    return id.ok() ? std::string("accepted") : id.error().message;
  };
  EXPECT_EQ(refused({{}, greedy(), 5, false}),
            "prompt: no tokens is not accepted; expected at least one token");
  EXPECT_NE(refused({{-1}, greedy(), 5, false}).find("token id: -1"), std::string::npos);
  EXPECT_NE(refused({{1 << 20}, greedy(), 5, false}).find("token id"), std::string::npos);
  EXPECT_NE(refused({{1}, greedy(), 0, false}).find("max_tokens: 0"), std::string::npos);
  EXPECT_NE(refused({{1, 2}, greedy(), 255, false}).find("at most 254"), std::string::npos);
  EXPECT_TRUE(scheduler.idle());
  expect_all_free(*engine);
}

TEST(Scheduler, CancellingEndsARequestAtTheNextStepWaitingOrRunning) {
  const auto engine = make_engine(small_options());
  Scheduler scheduler(*engine);
  std::vector<GenerationId> ids;
  for (unsigned i = 0; i < 6; ++i) {  // four rows: two wait
    ids.push_back(scheduler.submit({random_prompt(*engine, 20, i), greedy(), 50, true}).value());
  }
  ASSERT_TRUE(scheduler.step().ok());
  scheduler.cancel(ids[1]);
  scheduler.cancel(ids[5]);
  scheduler.cancel(GenerationId{999});
  const auto finished = run_all(scheduler);
  ASSERT_EQ(finished.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    const bool cancelled = i == 1 || i == 5;
    EXPECT_EQ(finished[i].reason, cancelled ? FinishReason::cancelled : FinishReason::length) << i;
    EXPECT_EQ(finished[i].output.size() < 50, cancelled) << i;
  }
}

TEST(Scheduler, ARequestThatFindsNoRoomAlthoughNothingRunsEndsWithAnError) {
  EngineOptions options = small_options();
  options.max_running_requests = 1;
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(scheduler.submit({{1, 2, 3}, greedy(), 4, true}).ok());
  const auto finished = run_all(scheduler, true);  // the first keeps its row
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].reason, FinishReason::length);
  EXPECT_EQ(finished[1].reason, FinishReason::error);
  EXPECT_NE(finished[1].error->message.find("all 1 are in use"), std::string::npos);
}

TEST(Scheduler, AChatTurnEvaluatesOnlyWhatIsNew) {
  const EngineOptions options = small_options();
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  auto prompt = random_prompt(*engine, 30, 1);
  ASSERT_TRUE(scheduler.submit({prompt, greedy(), 10, true}).ok());
  Finished first = std::move(run_all(scheduler, true).front());
  prompt.insert(prompt.end(), first.output.begin(), first.output.end());
  const auto next = random_prompt(*engine, 25, 2);
  prompt.insert(prompt.end(), next.begin(), next.end());
  ASSERT_TRUE(engine->extend(first.sequence, prompt, greedy()).ok());
  ASSERT_TRUE(scheduler.submit(std::move(first.sequence), 10, true).ok());
  const Finished second = std::move(run_all(scheduler).front());
  EXPECT_EQ(second.reused_tokens, 39) << "30 and 10 tokens, the newest of which is not evaluated";
  EXPECT_EQ(second.counters.tokens_evaluated, 26 + 9);
  EXPECT_EQ(second.output, solo(options, prompt, 10));
}

}  // namespace
}  // namespace replayssm
