// H01. kekzl/imp#1282: NaN at token 6 in GDN layer 8. Gates of 0 and -80 and zero keys are finite,
// and the L2 norm adds its epsilon inside the root.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/backends.h"
#include "ops/oracle.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(H01, GatesOfZeroAndMinusEightyAndZeroKeysMatchFloat64) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    for (GateKind gate : {GateKind::gdn, GateKind::kda}) {
      const HeadShape shape{gate, 1, 1};
      Tokens tokens = make_tokens(shape, 64, 1);
      for (int i = 0; i < tokens.count; ++i) {
        const float g = i % 6 == 0 ? -80.0f : i % 6 == 3 ? 0.0f : -0.1f;
        std::fill_n(tokens.gate.begin() + i * tokens.gate_stride(), tokens.gate_stride(), g);
        if (i % 5 == 2)
          std::fill_n(tokens.qkv.begin() + i * shape.channels() + kKeyDim, kKeyDim, 0.0f);
      }
      for (Route route : {Route::window, Route::chunk, Route::packed}) {
        LayerMemory memory(*owned.ops, shape, FoldGeometry::make(16, 8).value(), {}, 1, 1);
        const Trace trace = run_alone(memory, tokens, {{route, 8}});
        ASSERT_TRUE(std::all_of(trace.outputs.begin(), trace.outputs.end(),
                                [](float x) { return std::isfinite(x); }));
        EXPECT_LT(relative_error(trace.outputs, oracle(tokens)), 1e-6) << backend.name;
      }
    }
  }
}

TEST(H01, TheInverseNormOfAZeroKeyIsThatOfTheEpsilon) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(1);
    const HeadShape shape{GateKind::gdn, 1, 1};
    Tokens tokens = make_tokens(shape, 1, 1);
    std::fill_n(tokens.qkv.begin() + kKeyDim, kKeyDim, 0.0f);
    LayerMemory memory(*owned.ops, shape, FoldGeometry::make(16, 1).value(), {}, 1, 1);
    memory.admit(0, 0);
    run_step(memory, Route::window, {{0, &tokens, 0, 1}});
    // 1 / sqrt(0 + 1e-6), with 1e-6 in fp32.
    EXPECT_NEAR(memory.rings().key_scales[0], 1000.0f, 1e-3f) << backend.name;
  }
}

}  // namespace
}  // namespace replayssm::tests
