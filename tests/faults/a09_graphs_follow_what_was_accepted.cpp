// Fault A09 (TheTom/llama-cpp-turboquant#352): a captured verification bakes in what was accepted
// when it was captured. Windows of one length of which one draft is accepted, then three, then
// none: the text, its log-probabilities and what is left of the sequence are those of separate
// launches.
#include <gtest/gtest.h>

#include "graph_devices.h"

namespace replayssm {
namespace {

struct Verified {
  std::vector<TokenId> output;
  std::vector<double> logprobs;
  std::vector<std::byte> archive;
  std::int64_t accepted = 0, drafts = 0;
  bool operator==(const Verified&) const = default;
};

class A09 : public OnEveryDevice {};

TEST_P(A09, VerificationIsThatOfSeparateLaunchesHoweverManyDraftsAreAccepted) {
  constexpr int kTokens = 80, kWindow = 4;
  EngineOptions plain = options(false);
  plain.kept_sequences_least = 0;
  std::vector<TokenId> prompt, text;
  {
    const auto engine = make_engine(plain);
    ASSERT_TRUE(engine);
    prompt = random_prompt(*engine, 37, 3);
    text = joined(prompt, solo(plain, prompt, kTokens));
  }
  std::vector<Verified> runs;
  for (const bool graphs : {false, true}) {
    EngineOptions drafting = plain;
    drafting.graphs = graphs;
    drafting.window_max = kWindow;
    const auto engine = make_engine(drafting);
    ASSERT_TRUE(engine);
    // Windows are one after the other: how many drafts of each are right.
    int window = -1;
    const auto script = [&window](TokenId truth, int, int place) {
      constexpr int kRight[] = {1, 3, 0, 2, 3, 1};
      window += place == 0 ? 1 : 0;
      return place < kRight[window % 6] ? truth : (truth == 0 ? 1 : truth - 1);
    };
    engine->use_drafter(std::make_unique<ScriptedDrafter>(std::vector<std::vector<TokenId>>{text},
                                                          kWindow - 1, script));
    Scheduler scheduler(*engine);
    GenerationRequest request{prompt, greedy(), kTokens, true};
    request.top_logprobs = 0;
    ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    Verified& run = runs.emplace_back();
    while (!scheduler.idle()) {
      auto events = scheduler.step();
      ASSERT_TRUE(events.ok()) << events.error().message;
      for (const auto& token : events->tokens) run.logprobs.push_back(token.logprobs->logprob);
      for (const Finished& finished : events->finished) {
        run.output = finished.output;
        run.accepted = finished.counters.drafts_accepted;
        run.drafts = finished.counters.drafts;
        run.archive = engine->pause(finished.sequence).value();
      }
    }
  }
  EXPECT_EQ(joined(prompt, runs[0].output), text);
  EXPECT_EQ(runs[0].logprobs.size(), static_cast<std::size_t>(kTokens));
  EXPECT_GT(runs[0].accepted, 20);
  EXPECT_LT(runs[0].accepted, runs[0].drafts);
  EXPECT_TRUE(runs[0] == runs[1]);
}

INSTANTIATE_TEST_SUITE_P(Devices, A09, kGraphSettings, name_of_setting);

}  // namespace
}  // namespace replayssm
