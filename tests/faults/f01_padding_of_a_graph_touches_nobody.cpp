// Faults F01 (lightseekorg/tokenspeed#700), F02 (sgl-project/sglang#30974) and F03
// (sgl-project/sglang#21558, #27601; NVIDIA/TensorRT-LLM#13278, #9873) in a replayed graph: its
// padding writes to a live slot 0, leaves outputs that nobody wrote, or reaches beyond a full pool.
#include <gtest/gtest.h>

#include <cmath>

#include "graph_devices.h"

namespace replayssm {
namespace {

class F01Graphs : public OnEveryDevice {};

// Every slot and row is somebody's. Three of four step, which a graph is padded for; the one whose
// checkpoint is in slot 0 stands still.
TEST_P(F01Graphs, PaddingBesideALiveSlotZeroInAFullPoolChangesNothing) {
  constexpr int kRows = 4;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::byte>> left;
  for (const bool graphs : {false, true}) {
    EngineOptions these = options(graphs);
    these.kept_sequences_least = 0;
    these.max_running_requests = kRows;
    const auto engine = make_engine(these);
    ASSERT_TRUE(engine);
    std::vector<Sequence> sequences;
    for (int r = 0; r < kRows; ++r) {
      const auto prompt = random_prompt(*engine, 60, static_cast<unsigned>(20 + r));
      sequences.push_back(engine->admit(prompt, greedy()).value());
      const StepRow row{&sequences.back(), 33 + r, Phase::prefill, 0};
      ASSERT_TRUE(engine->prepare(row).ok());
      ASSERT_TRUE(engine->runner().evaluate({&row, 1}).ok());
      ASSERT_TRUE(engine->runner().commit().ok());
    }
    ASSERT_EQ(engine->memory().slots().free(), 0);
    ASSERT_EQ(engine->memory().rows().free(), 0);
    const auto still = std::find_if(sequences.begin(), sequences.end(), [](const Sequence& each) {
      return each.memory.base() == SlotId{0};
    });
    ASSERT_NE(still, sequences.end());
    const std::vector<std::byte> before = engine->pause(*still).value();
    std::vector<float>& all = logits.emplace_back();
    for (int n = 0; n < 20; ++n) {
      std::vector<StepRow> rows;
      for (Sequence& sequence : sequences) {
        if (&sequence == &*still) continue;
        rows.push_back({&sequence, 1, Phase::decode, 1});
        ASSERT_TRUE(engine->prepare(rows.back()).ok());
      }
      const auto out = engine->runner().evaluate(rows);
      ASSERT_TRUE(out.ok()) << out.error().message;
      for (int r = 0; r < kRows - 1; ++r) {
        const auto row = engine->runner().logits_row(*out, r);
        const auto known = row.first(static_cast<std::size_t>(engine->config().vocab_size));
        EXPECT_TRUE(
            std::all_of(known.begin(), known.end(), [](float x) { return std::isfinite(x); }))
            << n << " " << r;
        all.insert(all.end(), known.begin(), known.end());
      }
      ASSERT_TRUE(engine->runner().commit().ok());
    }
    EXPECT_EQ(engine->pause(*still).value(), before);
    for (const Sequence& sequence : sequences) left.push_back(engine->pause(sequence).value());
  }
  EXPECT_EQ(logits[0], logits[1]);
  for (std::size_t r = 0; r < kRows; ++r) EXPECT_EQ(left[r], left[r + kRows]) << r;
}

INSTANTIATE_TEST_SUITE_P(Devices, F01Graphs, kGraphSettings, name_of_setting);

}  // namespace
}  // namespace replayssm
