// A02. sgl-project/sglang#42688: unread history rows were multiplied by zero, and NaN * 0 = NaN
// leaked into the output. Rows that are not pending must be selected away.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(A02, APoisonedRingGivesTheOutputOfAZeroFilledOne) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    for (const Variant& v : variants()) {
      const FoldGeometry geometry = FoldGeometry::make(v.block, v.window).value();
      const Tokens tokens = make_tokens(v.shape, 6, 1, {.bf16_values = v.types.key == DType::bf16});
      std::vector<std::vector<float>> results;
      for (unsigned char fill : std::initializer_list<unsigned char>{0x00, 0xff, 0x7e}) {
        LayerMemory memory(*owned.ops, v.shape, geometry, v.types, 1, 1);
        memory.admit(0, 0);
        std::vector<float> outputs;
        for (int i = 0; i < tokens.count; ++i) {  // i records are pending
          memory.poison_unread_records(0, fill);
          const auto out = run_step(memory, Route::window, {{0, &tokens, i, 1}});
          outputs.insert(outputs.end(), out[0].begin(), out[0].end());
        }
        results.push_back(outputs);
      }
      EXPECT_TRUE(std::all_of(results[0].begin(), results[0].end(),
                              [](float x) { return std::isfinite(x); }));
      EXPECT_TRUE(same_bits(results[1], results[0])) << backend.name << " " << v.name;
      EXPECT_TRUE(same_bits(results[2], results[0])) << backend.name << " " << v.name;
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
