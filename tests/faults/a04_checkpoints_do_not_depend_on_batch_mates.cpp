// A04. sglang fork, GDN commit-kernel change (number unverified): a kernel picked by batch size
// made checkpoints depend on batch mates. The route is a function of static geometry only.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(A04, CheckpointBytesAreEqualAloneAndAmongSeventeen) {
  const OwnedOps owned = cpu_backend().make(4);
  for (const Variant& v : variants()) {
    const FoldGeometry geometry = FoldGeometry::make(v.block, v.window).value();
    const int count = 2 * v.block + 1;
    const Tokens tokens =
        make_tokens(v.shape, count, 1, {.bf16_values = v.types.key == DType::bf16});
    const Tokens others =
        make_tokens(v.shape, count, 2, {.bf16_values = v.types.key == DType::bf16});
    for (int rows : {2, 17}) {
      LayerMemory alone(*owned.ops, v.shape, geometry, v.types, 1, 1);
      LayerMemory crowd(*owned.ops, v.shape, geometry, v.types, rows, rows);
      alone.admit(0, 0);
      for (int row = 0; row < rows; ++row) crowd.admit(row, row);
      for (int i = 0; i < count; ++i) {
        run_step(alone, Route::window, {{0, &tokens, i, 1}});
        std::vector<Part> parts;
        for (int row = 0; row < rows; ++row) {
          parts.push_back({row, row == rows - 1 ? &tokens : &others, i, 1});
        }
        run_step(crowd, Route::window, parts);
      }
      ASSERT_EQ(alone.checkpoint[0], Depth{2 * v.block});
      EXPECT_EQ(crowd.slot_bytes(rows - 1), alone.slot_bytes(0)) << v.name << ", " << rows;
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
