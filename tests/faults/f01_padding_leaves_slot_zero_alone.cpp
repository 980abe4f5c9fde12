// F01 (lightseekorg/tokenspeed#700) and F03 (sgl-project/sglang#21558, #27601;
// NVIDIA/TensorRT-LLM#13278, #9873): a pad index was clamped to slot 0, or pointed out of the state
// pool. Padding rows beside a live slot 0, in a pool without a free slot, change no byte; the
// memory sanitizer watches the bounds.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(F01, PaddingBesideALiveSlotZeroInAFullPoolChangesNoByte) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    for (const Variant& v : variants()) {
      const FoldGeometry geometry = FoldGeometry::make(v.block, v.window).value();
      const Tokens a = make_tokens(v.shape, 40, 1, {.bf16_values = true});
      const Tokens b = make_tokens(v.shape, 40, 2, {.bf16_values = true});
      LayerMemory eager(*owned.ops, v.shape, geometry, v.types, 2, 2);
      LayerMemory padded(*owned.ops, v.shape, geometry, v.types, 4, 2);
      for (LayerMemory* memory : {&eager, &padded}) {
        memory->admit(0, 0);
        memory->admit(1, 1);
      }
      for (int i = 0; i < 40; i += 2) {
        const Route route = i % 8 == 6 ? Route::chunk : Route::window;
        const auto expected = run_step(eager, route, {{0, &a, i, 2}, {1, &b, i, 2}});
        const auto out =
            run_step(padded, route, {{2, &b, i, 2}, {0, &a, i, 2}, {3, &a, 38, 2}, {1, &b, i, 2}});
        ASSERT_TRUE(same_bits(out[1], expected[0])) << backend.name << " " << v.name;
        ASSERT_TRUE(same_bits(out[3], expected[1])) << backend.name << " " << v.name;
      }
      for (int slot : {0, 1}) {
        EXPECT_EQ(padded.slot_bytes(slot), eager.slot_bytes(slot)) << backend.name << " " << v.name;
      }
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
