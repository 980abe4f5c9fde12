// Errors against float64 and between the two routes, at mild, moderate and extreme gates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/backends.h"
#include "ops/layer_memory.h"
#include "ops/oracle.h"

namespace replayssm::tests {
namespace {

struct AccuracyCase {
  std::string name;
  Backend backend;
  GateKind gate;
};
std::ostream& operator<<(std::ostream& to, const AccuracyCase& c) { return to << c.name; }

class Accuracy : public testing::TestWithParam<AccuracyCase> {
 protected:
  void SetUp() override { REPLAYSSM_NEEDS_BACKEND(GetParam().backend.make(1)); }
  HeadShape shape() const { return {GetParam().gate, 1, 2}; }
  Tokens tokens(int count, std::uint32_t seed, TokenOptions options) const {
    options.bf16_values = options.bf16_values || GetParam().backend.bf16_activations;
    return make_tokens(shape(), count, seed, options);
  }
  // Output error of a route over `tokens`, decoded one by one.
  double error(Route route, const Tokens& tokens, StorageTypes types) const {
    const OwnedOps owned = GetParam().backend.make(1);
    LayerMemory memory(owned, tokens.shape, FoldGeometry::make(16, 1).value(), types, 1, 1);
    memory.admit(0, 0);
    std::vector<float> outputs;
    for (int i = 0; i < tokens.count; ++i) {
      const auto out = run_step(memory, route, {{0, &tokens, i, 1}});
      outputs.insert(outputs.end(), out[0].begin(), out[0].end());
    }
    EXPECT_TRUE(
        std::all_of(outputs.begin(), outputs.end(), [](float x) { return std::isfinite(x); }));
    const double e = relative_error(outputs, oracle(tokens));
    RecordProperty(route == Route::packed ? "packed" : "replay", fmt::format("{:.3g}", e));
    return e;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Accuracy,
                         testing::Values(AccuracyCase{"cpu_gdn", cpu_backend(), GateKind::gdn},
                                         AccuracyCase{"cpu_kda", cpu_backend(), GateKind::kda},
                                         AccuracyCase{"cuda_gdn", cuda_backend(), GateKind::gdn},
                                         AccuracyCase{"cuda_kda", cuda_backend(), GateKind::kda}),
                         [](const auto& test) { return test.param.name; });

TEST_P(Accuracy, ReplayInFp32IsWithinFourTimesThePackedStepAndBelow1em6) {
  for (float decay : {0.002f, 0.03f, 0.5f}) {
    const Tokens input = tokens(600, 1, {.mean_decay = decay});
    const double packed = error(Route::packed, input, {});
    const double replay = error(Route::window, input, {});
    EXPECT_LT(packed, 1e-6) << decay;
    EXPECT_LT(replay, std::min(1e-6, 4 * packed)) << decay << " packed " << packed;
  }
}

TEST_P(Accuracy, ReplayWithABf16StateIsNoWorseThanThePackedStep) {
  const StorageTypes bf16_all{DType::bf16, DType::bf16, DType::bf16};
  for (float decay : {0.002f, 0.03f}) {
    const Tokens input = tokens(600, 2, {.mean_decay = decay, .bf16_values = true});
    EXPECT_LE(error(Route::window, input, bf16_all), error(Route::packed, input, bf16_all))
        << decay;
  }
}

// Gates of 0 and -80, zero keys and queries, beta 0 and 1, in every combination.
TEST_P(Accuracy, ExtremeInputsStayFiniteAndRight) {
  Tokens input = tokens(200, 3, {});
  for (int i = 0; i < input.count; ++i) {
    const auto fill = [&](std::vector<float>& values, std::size_t stride, std::size_t from,
                          std::size_t count,
                          float x) { std::fill_n(values.begin() + i * stride + from, count, x); };
    if (i % 7 == 3) fill(input.gate, input.gate_stride(), 0, input.gate_stride(), -80);
    if (i % 5 == 1) fill(input.gate, input.gate_stride(), 0, input.gate_stride(), 0);
    if (i % 11 == 2) fill(input.qkv, input.shape.channels(), kKeyDim, kKeyDim, 0);
    if (i % 13 == 2) fill(input.qkv, input.shape.channels(), 0, kKeyDim, 0);
    if (i % 3 == 0) fill(input.beta, input.shape.value_heads, 0, input.shape.value_heads, 1);
    if (i % 4 == 1) fill(input.beta, input.shape.value_heads, 0, input.shape.value_heads, 0);
  }
  EXPECT_LT(error(Route::packed, input, {}), 1e-6);
  EXPECT_LT(error(Route::window, input, {}), 1e-6);
}

}  // namespace
}  // namespace replayssm::tests
