// F05. huggingface/transformers#46773; AI-Hypercomputer/maxtext#5292: left or right padding entered
// convolution and state. A row's tokens are a span of the packed arrays; what lies before and after
// belongs to no row and is not read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(F05, FivePaddingTokensBeforeAndAfterChangeNothing) {
  constexpr int kPad = 5;
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    const HeadShape shape{GateKind::gdn, 1, 2};
    const FoldGeometry geometry = FoldGeometry::make(8, 1).value();
    const Tokens tokens = make_tokens(shape, 21, 1);
    LayerMemory plain(*owned.ops, shape, geometry, {}, 1, 1);
    LayerMemory padded(*owned.ops, shape, geometry, {}, 1, 1);
    plain.admit(0, 0);
    padded.admit(0, 0);
    const auto expected = run_step(plain, Route::chunk, {{0, &tokens, 0, tokens.count}});

    const auto pad = [](const std::vector<float>& values, std::size_t stride) {
      std::vector<float> wide(kPad * stride, std::nanf(""));
      wide.insert(wide.end(), values.begin(), values.end());
      wide.insert(wide.end(), kPad * stride, std::nanf(""));
      return wide;
    };
    const auto qkv = pad(tokens.qkv, shape.channels());
    const auto gate = pad(tokens.gate, tokens.gate_stride());
    const auto beta = pad(tokens.beta, shape.value_heads);
    std::vector<float> out((tokens.count + 2 * kPad) * tokens.out_stride(), 7.0f);
    const RowTokens rows[] = {{RowIndex{0}, kPad, tokens.count, Phase::prefill}};
    ASSERT_TRUE(
        owned.ops
            ->chunk_prefill({shape, geometry, padded.states(), padded.rings(), padded.cursors(),
                             rows, qkv.data(), gate.data(), beta.data(), out.data()})
            .ok());
    const std::size_t before = kPad * tokens.out_stride();
    EXPECT_TRUE(
        same_bits(std::vector<float>(out.begin() + before, out.end() - before), expected[0]));
    EXPECT_TRUE(std::all_of(out.begin(), out.begin() + before, [](float x) { return x == 7; }));
    EXPECT_TRUE(std::all_of(out.end() - before, out.end(), [](float x) { return x == 7; }));
    EXPECT_EQ(padded.slot_bytes(0), plain.slot_bytes(0)) << backend.name;
  }
}

}  // namespace
}  // namespace replayssm::tests
