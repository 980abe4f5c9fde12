// Fault I04 (vllm-project/vllm-ascend#3368): pages for a hybrid model's KV and state are allocated
// several times larger than what is stored in them.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(I04, AFullEngineUsesNineTenthsOfWhatItReserves) {
  EngineOptions options = small_options();
  options.context_length = 250;
  const auto engine = make_engine(options);
  const SequenceMemory& memory = engine->memory();
  std::vector<Sequence> sequences;
  for (unsigned i = 0; i < 4; ++i) {
    sequences.push_back(engine->admit(random_prompt(*engine, 250, i), greedy()).value());
    while (sequences.back().evaluated() < 250) {
      const StepRow row = Engine::next_row(sequences.back(), 50);
      ASSERT_TRUE(engine->prepare(row).ok());
      ASSERT_TRUE(engine->step({&row, 1}).ok());
    }
  }
  // Bytes that hold something of the four sequences of 250 tokens, from the shapes.
  const SequenceLayout& layout = memory.layout();
  const std::int64_t used =
      4 * (layout.linear_layers * (layout.state_bytes() + layout.tail_bytes()) +
           layout.linear_layers * layout.geometry.fold_block() * layout.record_bytes() +
           layout.conv_ring_bytes_per_row() + layout.cursor_bytes_per_row() +
           250 * layout.kv_bytes_per_token());
  EXPECT_GE(static_cast<double>(used), 0.9 * static_cast<double>(memory.bytes()))
      << used << " of " << memory.bytes();
}

}  // namespace
}  // namespace replayssm
