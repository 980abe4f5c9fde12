// Fault E04 (invergent-ai/surogate serve changelog 86): speculation needs a second state slot a
// lane (171 against 99 MB), so that fewer lanes fit and throughput falls.
#include <gtest/gtest.h>

#include "engine/memory_needs.h"

namespace replayssm {
namespace {

// The shapes of the 27B model: 48 linear and 16 attention layers.
ModelConfig large_model() {
  ModelConfig config;
  config.hidden_size = 5120;
  config.intermediate_size = 17408;
  for (int i = 0; i < 64; ++i) {
    config.layers.push_back(i % 4 == 3 ? LayerKind::attention : LayerKind::linear);
  }
  config.vocab_rows = config.vocab_size = 248320;
  config.attention = {24, 4, 256, true};
  config.linear = {GateKind::gdn, 16, 48};
  return config;
}

SequenceLayout layout_with_window(int window) {
  ModelOptions options;
  options.activations = DType::bf16;
  options.geometry = FoldGeometry::make(16, window, kCpuRingAccess).value();
  return sequence_layout(large_model(), options, DType::f32, 16);
}

TEST(E04, RingsOfEightDraftTokensAreLessThanATenthOfTheSnapshotsTheyReplace) {
  const SequenceLayout layout = layout_with_window(8);
  const std::int64_t rings = layout.ring_bytes_per_row() + layout.conv_ring_bytes_per_row();
  EXPECT_LT(rings * 10, 8 * layout.slot_bytes());
}

TEST(E04, SpeculationTakesNoSlotsAndHardlyAnyRequests) {
  const auto requests = [](int window) {
    MemoryNeeds needs = sequence_needs(layout_with_window(window));
    needs.budget = std::int64_t{16} << 30;
    needs.context_length = 8192;
    return plan_memory(needs).value();
  };
  const MemoryPlan plain = requests(1);
  const MemoryPlan speculative = requests(8);
  EXPECT_EQ(speculative.slots, speculative.rows);
  EXPECT_GE(speculative.rows * 10, plain.rows * 9) << speculative.rows << " of " << plain.rows;
}

}  // namespace
}  // namespace replayssm
