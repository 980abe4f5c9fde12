// G02. Blaizzy/mlx-vlm#1946, #2242: batched hybrid generation differed from solo. One long and one
// short sequence, prefilled and decoded together, each get the bits that they get alone.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(G02, ALongAndAShortSequenceTogetherAreEachAsAlone) {
  const OwnedOps owned = cpu_backend().make(3);
  for (const Variant& v : variants()) {
    const FoldGeometry geometry = FoldGeometry::make(v.block, v.window).value();
    const int lengths[] = {90, 7};
    std::vector<Tokens> tokens;
    std::vector<Trace> alone;
    for (int i = 0; i < 2; ++i) {
      tokens.push_back(make_tokens(v.shape, lengths[i] + 20, 10u + static_cast<std::uint32_t>(i),
                                   {.bf16_values = v.types.key == DType::bf16}));
      LayerMemory memory(*owned.ops, v.shape, geometry, v.types, 1, 1);
      alone.push_back(run_alone(memory, tokens[i], {{Route::window, 1}}));
    }
    LayerMemory both(*owned.ops, v.shape, geometry, v.types, 2, 2);
    both.admit(0, 1);
    both.admit(1, 0);
    std::vector<std::vector<float>> outputs = run_step(
        both, Route::chunk, {{0, &tokens[0], 0, lengths[0]}, {1, &tokens[1], 0, lengths[1]}});
    for (int i = 0; i < 20; ++i) {
      const auto out =
          run_step(both, Route::window,
                   {{0, &tokens[0], lengths[0] + i, 1}, {1, &tokens[1], lengths[1] + i, 1}});
      for (int row = 0; row < 2; ++row) {
        outputs[row].insert(outputs[row].end(), out[row].begin(), out[row].end());
      }
    }
    EXPECT_TRUE(same_bits(outputs[0], alone[0].outputs)) << v.name;
    EXPECT_TRUE(same_bits(outputs[1], alone[1].outputs)) << v.name;
  }
}

}  // namespace
}  // namespace replayssm::tests
