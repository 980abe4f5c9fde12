// Fault C08 (syv-ai/qwen38-27b-rtx3090#13): a prefix cache and captured verification are each right
// and together corrupt the text. D02 (noonghunna/club-3090#896, #920): a graph is found again by
// its shape, and equal requests get several answers.
#include <gtest/gtest.h>

#include <set>

#include "graph_devices.h"

namespace replayssm {
namespace {

class C08 : public OnEveryDevice {};

TEST_P(C08, EveryCombinationOfCacheGraphsAndDraftsGivesOneText) {
  constexpr int kTokens = 60;
  EngineOptions plain = options(false);
  std::vector<std::vector<TokenId>> prompts, outputs, texts;
  {
    const auto engine = make_engine(plain);
    ASSERT_TRUE(engine);
    for (const int length : {33, 48, 20}) {
      prompts.push_back(random_prompt(*engine, length, static_cast<unsigned>(length)));
    }
  }
  for (const auto& prompt : prompts) {
    outputs.push_back(solo(plain, prompt, kTokens));
    texts.push_back(joined(prompt, outputs.back()));
  }
  for (const bool drafts : {false, true}) {
    for (const bool cached : {false, true}) {
      for (const bool graphs : {false, true}) {
        EngineOptions these = options(graphs);
        these.window_max = drafts ? 5 : 1;
        const auto engine = make_engine(these);
        ASSERT_TRUE(engine);
        if (drafts) {
          engine->use_drafter(
              std::make_unique<ScriptedDrafter>(texts, 4, drafter_doubles()[2].script));
        }
        PrefixCache cache(engine->memory(), engine->ops(), {engine->plan().kept_rows, 1 << 24});
        SchedulerOptions scheduling;
        scheduling.cache = cached ? &cache : nullptr;
        scheduling.track_interval = 16;
        Scheduler scheduler(*engine, scheduling);
        int reused = 0;
        std::int64_t accepted = 0;
        // Again from the cache, and again from the host.
        for (int time = 0; time < 3; ++time) {
          for (const auto& prompt : prompts) {
            ASSERT_TRUE(scheduler.submit({prompt, greedy(), kTokens, true}).ok());
          }
          const auto finished = run_all(scheduler);
          ASSERT_EQ(finished.size(), prompts.size());
          for (std::size_t i = 0; i < finished.size(); ++i) {
            EXPECT_EQ(finished[i].output, outputs[i])
                << "drafts " << drafts << " cache " << cached << " graphs " << graphs << " time "
                << time << " request " << i;
            reused += finished[i].reused_tokens;
            accepted += finished[i].counters.drafts_accepted;
          }
          while (cached && time == 1 && cache.evict_one()) {
          }
        }
        EXPECT_EQ(reused > 0, cached);
        EXPECT_EQ(accepted > 0, drafts);
        EXPECT_EQ(cache.host_restores() > 0, cached);
        cache.clear();
        expect_all_free(*engine);
      }
    }
  }
}

class D02Graphs : public OnEveryDevice {};

TEST_P(D02Graphs, FourEqualRequestsGiveOneAnswerThatOfSeparateLaunches) {
  std::set<std::vector<TokenId>> all;
  for (const bool graphs : {false, true}) {
    EngineOptions these = options(graphs);
    these.kept_sequences_least = 0;
    // All at once, and one more row in every step.
    for (const int stagger : {4, 1}) all.merge(answers(these, 4, stagger));
  }
  EXPECT_EQ(all.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Devices, C08, kGraphSettings, name_of_setting);
INSTANTIATE_TEST_SUITE_P(Devices, D02Graphs, kGraphSettings, name_of_setting);

}  // namespace
}  // namespace replayssm
