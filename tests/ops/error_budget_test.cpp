// The error budget of records and states over 8,192 tokens of one head, against float64:
//   fp32 state: at most 4 times the packed step's error and below 1e-6;
//   bf16 state: no larger than the packed step's;
//   no growth: the last 1,024 tokens are at most 1.2 times as wrong as the second 1,024.
// The table it prints is what the choice of record types rests on.
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>

#include "ops/backends.h"
#include "ops/layer_memory.h"
#include "ops/oracle.h"

namespace replayssm::tests {
namespace {

constexpr int kTokens = 8192;
constexpr int kPart = 1024;

struct Errors {
  double all = 0, second = 0, last = 0;
};

struct Case {
  const char* name;
  GateKind gate;
  float decay;
};

class ErrorBudget : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    tokens_ = make_tokens({GetParam().gate, 1, 1}, kTokens, 1,
                          {.mean_decay = GetParam().decay, .bf16_values = true});
    expected_ = oracle(tokens_);
  }

  double error(const std::vector<float>& out, int from, int count) const {
    const std::size_t width = tokens_.out_stride();
    const auto part = [&](const auto& values) {
      return std::vector<double>(values.begin() + from * width,
                                 values.begin() + (from + count) * width);
    };
    return relative_error(part(out), part(expected_));
  }

  Errors run(const char* what, Route route, StorageTypes types, int block) const {
    const OwnedOps owned = cpu_backend().make(1);
    LayerMemory memory(*owned.ops, tokens_.shape, FoldGeometry::make(block, 1).value(), types, 1,
                       1);
    memory.admit(0, 0);
    // A chunk gives the bits of decoding (packed as well), and is quicker to run.
    const auto out = run_step(memory, route, {{0, &tokens_, 0, kTokens}});
    const Errors errors{error(out[0], 0, kTokens), error(out[0], kPart, kPart),
                        error(out[0], kTokens - kPart, kPart)};
    std::printf("%-14s %-42s %.2e  second 1024 %.2e  last 1024 %.2e\n", GetParam().name, what,
                errors.all, errors.second, errors.last);
    return errors;
  }

  Tokens tokens_;
  std::vector<double> expected_;
};

INSTANTIATE_TEST_SUITE_P(Cpu, ErrorBudget,
                         testing::Values(Case{"gdn_mild", GateKind::gdn, 0.002f},
                                         Case{"gdn_moderate", GateKind::gdn, 0.03f},
                                         Case{"kda_mild", GateKind::kda, 0.002f},
                                         Case{"kda_moderate", GateKind::kda, 0.03f}),
                         [](const auto& test) { return test.param.name; });

TEST_P(ErrorBudget, ReplayKeepsItOver8192Tokens) {
  const StorageTypes f32{DType::f32, DType::bf16, DType::f32};
  const StorageTypes f32_bf16{DType::f32, DType::bf16, DType::bf16};
  const StorageTypes bf16_f32{DType::bf16, DType::bf16, DType::f32};
  const StorageTypes bf16_bf16{DType::bf16, DType::bf16, DType::bf16};

  const Errors packed = run("packed, fp32 state", Route::packed, f32, 16);
  EXPECT_LT(packed.all, 1e-6);
  const Errors packed_bf16 = run("packed, bf16 state", Route::packed, bf16_bf16, 16);
  run("replay 16, fp32 state, bf16 records", Route::chunk, f32_bf16, 16);
  for (int block : {8, 16, 32}) {
    const auto name = [&](const char* types) { return fmt::format("replay {}, {}", block, types); };
    const Errors replay = run(name("fp32 state, fp32 records").c_str(), Route::chunk, f32, block);
    EXPECT_LT(replay.all, 1e-6);
    EXPECT_LT(replay.all, 4 * packed.all);
    EXPECT_LE(replay.last, 1.2 * replay.second);
    for (const StorageTypes& types : {bf16_f32, bf16_bf16}) {
      const char* what =
          types.correction == DType::f32 ? "bf16 state, fp32 records" : "bf16 state, bf16 records";
      const Errors rounded = run(name(what).c_str(), Route::chunk, types, block);
      EXPECT_LE(rounded.all, packed_bf16.all);
      EXPECT_LE(rounded.last, 1.2 * rounded.second);
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
