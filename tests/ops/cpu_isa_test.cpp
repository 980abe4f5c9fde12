// One source, several instruction sets: each is right and exact by itself, and those with fused
// multiply-add agree bit for bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/backends.h"
#include "ops/cpu_isa.h"
#include "ops/oracle.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

class CpuIsa : public testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(force_cpu_isa("auto").ok()); }
};

Trace run(const Variant& v, const Tokens& tokens, const std::vector<Span>& split) {
  const OwnedOps owned = cpu_backend().make(2);
  LayerMemory memory(*owned.ops, v.shape, FoldGeometry::make(v.block, v.window).value(), v.types, 1,
                     1);
  return run_alone(memory, tokens, split);
}

TEST_F(CpuIsa, ScalarIsAlwaysListedLastAndUnknownNamesAreRefused) {
  const std::vector<std::string> names = cpu_isas();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "scalar");
  EXPECT_EQ(cpu_isa(), names.front());
  const Status status = force_cpu_isa("mmx");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("scalar"), std::string::npos);
}

TEST_F(CpuIsa, EachIsWhatItSaysAndExactForEverySplit) {
  for (const std::string& name : cpu_isas()) {
    ASSERT_TRUE(force_cpu_isa(name).ok());
    ASSERT_EQ(cpu_isa(), name);
    for (const Variant& v : variants()) {
      const Tokens tokens =
          make_tokens(v.shape, 50, 1, {.bf16_values = v.types.key == DType::bf16});
      const Trace decode = run(v, tokens, {{Route::window, 1}});
      // fp32: 1e-6. bf16 states and records: about 2^-9 each time one is rounded.
      const double tolerance = v.types.state == DType::bf16 ? 1e-2 : 1e-6;
      EXPECT_LT(relative_error(decode.outputs, oracle(tokens)), tolerance) << name << " " << v.name;
      EXPECT_TRUE(same_bits(run(v, tokens, {{Route::chunk, 50}}).outputs, decode.outputs))
          << name << " " << v.name;
      EXPECT_TRUE(same_bits(run(v, tokens, {{Route::window, v.window}}).outputs, decode.outputs))
          << name << " " << v.name;
    }
  }
}

TEST_F(CpuIsa, ThoseWithFusedMultiplyAddAgreeBitForBit) {
  for (const Variant& v : variants()) {
    const Tokens tokens = make_tokens(v.shape, 50, 2, {.bf16_values = v.types.key == DType::bf16});
    std::vector<Trace> traces;
    for (const char* name : {"avx2", "avx512", "neon"}) {
      if (force_cpu_isa(name).ok()) traces.push_back(run(v, tokens, {{Route::window, v.window}}));
    }
    for (const Trace& trace : traces) {
      EXPECT_TRUE(same_bits(trace.outputs, traces[0].outputs)) << v.name;
      EXPECT_TRUE(same_bits(trace.end.state, traces[0].end.state)) << v.name;
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
