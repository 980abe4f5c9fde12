// F04. flashinfer-ai/flashinfer#2793: a negative (pad) index was handled differently across
// kernels. Every operation that takes slot ids reads nothing, writes nothing and leaves zeros for
// it.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

class F04 : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, F04, testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

TEST_P(F04, RecurrenceAdvanceAndFold) {
  const OwnedOps owned = GetParam().make(2);
  const HeadShape shape{GateKind::kda, 1, 2};
  const Tokens tokens = make_tokens(shape, 8, 1);
  LayerMemory memory(*owned.ops, shape, FoldGeometry::make(16, 8).value(), {}, 1, 1);
  const auto before = memory.all_bytes();
  for (Route route : {Route::packed, Route::window, Route::chunk}) {
    const auto out = run_step(memory, route, {{0, &tokens, 0, 8}});  // advances, too
    EXPECT_EQ(out[0], std::vector<float>(out[0].size(), 0.0f));
  }
  const StateView states[] = {memory.states()};
  const RingView rings[] = {memory.rings()};
  const FoldRow rows[] = {{RowIndex{0}, Depth{0}, 4, kNullSlot, SlotId{0}, {}}};
  EXPECT_TRUE(owned.ops->fold({shape, memory.geometry(), states, rings, rows}).ok());
  EXPECT_EQ(memory.all_bytes(), before);
  EXPECT_EQ(memory.committed[0], Depth{0});
}

TEST_P(F04, Convolution) {
  const OwnedOps owned = GetParam().make(2);
  const FoldGeometry geometry = FoldGeometry::make(16, 8).value();
  const int channels = 130;
  std::vector<float> ring(geometry.conv_rows() * channels, -1), tail(3 * channels, -1);
  const std::vector<float> weight(channels * 4, 1), input(8 * channels, 1);
  Depth committed{20}, checkpoint{0};
  SlotId base = kNullSlot, home = kNullSlot;
  for (Phase phase : {Phase::verify, Phase::prefill}) {
    std::vector<float> out(8 * channels, 7);
    const RowTokens rows[] = {{RowIndex{0}, 0, 8, phase}};
    const ConvArgs args{geometry,
                        Recurrence::replay,
                        {ring.data(), DType::f32, 1, geometry.conv_rows(), channels},
                        {tail.data(), DType::f32, tail.size(), 1, channels},
                        {&committed, &checkpoint, &base, &home, 1},
                        rows,
                        weight.data(),
                        input.data(),
                        out.data()};
    const Status status =
        phase == Phase::verify ? owned.ops->conv_window(args) : owned.ops->conv_chunk(args);
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(out, std::vector<float>(out.size(), 0.0f));
    EXPECT_EQ(ring, std::vector<float>(ring.size(), -1.0f));
    EXPECT_EQ(tail, std::vector<float>(tail.size(), -1.0f));
  }
}

}  // namespace
}  // namespace replayssm::tests
