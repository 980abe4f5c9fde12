// H02. ollama/ollama#15865: an fp32 state was written as bf16. The state keeps more bits than bf16
// after one fold, and two thousand steps do not drift.
#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "ops/backends.h"
#include "ops/oracle.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(H02, StatesKeepMoreBitsThanBf16) {
  const OwnedOps owned = cpu_backend().make(1);
  EXPECT_EQ(owned.ops->state_type_for(DType::f32), DType::f32);
  const HeadShape shape{GateKind::gdn, 1, 1};
  const Tokens tokens = make_tokens(shape, 17, 1);
  for (Route route : {Route::window, Route::packed}) {
    LayerMemory memory(*owned.ops, shape, FoldGeometry::make(16, 1).value(), {}, 1, 1);
    run_alone(memory, tokens, {{route, 1}});
    std::vector<float> state(shape.state_elements());
    ASSERT_TRUE(owned.ops->export_state(shape, memory.states(), SlotId{0}, state).ok());
    std::size_t finer = 0;
    for (float x : state) finer += x != round_to_bf16(x) ? 1 : 0;
    EXPECT_GT(finer, state.size() * 9 / 10);
  }
}

TEST(H02, TwoThousandStepsDoNotDrift) {
  const OwnedOps owned = cpu_backend().make(2);
  const HeadShape shape{GateKind::gdn, 1, 1};
  const Tokens tokens = make_tokens(shape, 2000, 2, {.mean_decay = 0.002f});
  LayerMemory memory(*owned.ops, shape, FoldGeometry::make(16, 1).value(), {}, 1, 1);
  const Trace trace = run_alone(memory, tokens, {{Route::window, 1}});
  const std::vector<double> expected = oracle(tokens);
  const std::size_t tail = 200 * tokens.out_stride();
  // fp32 rounding does not accumulate under the delta rule: the last 200 are as good as all.
  EXPECT_LT(relative_error(std::vector<float>(trace.outputs.end() - tail, trace.outputs.end()),
                           std::vector<double>(expected.end() - tail, expected.end())),
            1e-6);
}

}  // namespace
}  // namespace replayssm::tests
