// F02. sgl-project/sglang#30974: the convolution's output for padded rows was never written, and
// NaN spread from there. Outputs are poisoned before the call, here and in run_step; padded rows
// leave zeros, live rows the bits that they have alone.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

constexpr int kChannels = 130;

struct Rows {
  std::vector<RowTokens> rows;
  int tokens = 0;
};

// The convolution of the live rows among `rows`, each over the same inputs; the whole output.
std::vector<float> convolve(LinearOps& ops, const Rows& batch, int live,
                            const std::vector<float>& x, bool chunk) {
  const FoldGeometry geometry = FoldGeometry::make(16, 8).value();
  const int rows = static_cast<int>(batch.rows.size());
  std::vector<float> ring(static_cast<std::size_t>(rows) * geometry.conv_rows() * kChannels,
                          std::nanf(""));
  std::vector<float> tail(3 * kChannels, std::nanf(""));
  std::vector<Depth> committed(rows), checkpoint(rows);
  std::vector<SlotId> base(rows, kNullSlot), home(rows, kNullSlot);
  base[live] = home[live] = SlotId{0};
  const std::vector<float> weight(kChannels * kConvWidth, 0.5f);
  std::vector<float> out(x.size(), std::nanf(""));
  const ConvArgs args{geometry,
                      Recurrence::replay,
                      {ring.data(), DType::f32, rows, geometry.conv_rows(), kChannels},
                      {tail.data(), DType::f32, tail.size(), 1, kChannels},
                      {committed.data(), checkpoint.data(), base.data(), home.data(), rows},
                      batch.rows,
                      weight.data(),
                      x.data(),
                      out.data()};
  EXPECT_TRUE((chunk ? ops.conv_chunk(args) : ops.conv_window(args)).ok());
  return out;
}

TEST(F02, ConvolutionAndStepLeaveZerosForPaddingAndTheSoloBitsForTheRest) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(8 * kChannels);
  for (float& value : x) value = normal(random);
  std::vector<float> padded(3 * x.size(), std::nanf(""));
  std::copy(x.begin(), x.end(), padded.begin() + 8 * kChannels);
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    for (const bool chunk : {false, true}) {
      const Phase phase = chunk ? Phase::prefill : Phase::verify;
      const Rows one{{{RowIndex{0}, 0, 8, phase}}, 8};
      const Rows three{
          {{RowIndex{0}, 0, 8, phase}, {RowIndex{1}, 8, 8, phase}, {RowIndex{2}, 16, 8, phase}},
          24};
      const auto alone = convolve(*owned.ops, one, 0, x, chunk);
      std::vector<float> expected(padded.size(), 0.0f);
      std::copy(alone.begin(), alone.end(), expected.begin() + 8 * kChannels);
      EXPECT_TRUE(same_bits(convolve(*owned.ops, three, 1, padded, chunk), expected))
          << backend.name << (chunk ? " chunk" : " window");
    }
    const HeadShape shape{GateKind::kda, 1, 2};
    Tokens nothing = make_tokens(shape, 4, 1);
    std::fill(nothing.qkv.begin(), nothing.qkv.end(), std::nanf(""));
    LayerMemory memory(*owned.ops, shape, FoldGeometry::make(8, 4).value(), {}, 1, 1);
    for (const Route route : {Route::window, Route::chunk, Route::packed}) {
      const auto out = run_step(memory, route, {{0, &nothing, 0, 4}});
      EXPECT_EQ(out[0], std::vector<float>(out[0].size(), 0.0f)) << backend.name;
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
