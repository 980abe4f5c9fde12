#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/bfloat16.h"
#include "model/norm.h"

namespace replayssm {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

double exact_silu(double x) { return x / (1.0 + std::exp(-x)); }

double exact_inverse_rms(const float* x, int width, double eps) {
  double sum = 0;
  for (int i = 0; i < width; ++i) sum += static_cast<double>(x[i]) * x[i];
  return 1.0 / std::sqrt(sum / width + eps);
}

class Pointwise : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Pointwise,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& set) { return hwy::TargetName(set.param); });

constexpr double kFloat = 1e-6;          // a handful of fp32 roundings
constexpr double kBf16 = 0x1p-8 + 1e-6;  // one bf16 rounding of the result

TEST_P(Pointwise, RmsNormMultipliesByTheScaleBeforeTheOneRounding) {
  for (const int width : {1, 7, 64, 131}) {
    const auto n = static_cast<std::size_t>(width);
    const std::vector<float> x = random_values(3 * (n + 5), 1, 3.0f);
    const std::vector<float> scale = random_values(n, 2);
    std::vector<float> out(3 * n), rounded(3 * n);
    rms_norm({x.data(), n + 5}, 3, width, scale.data(), 1e-6, DType::f32, {out.data(), n});
    rms_norm({x.data(), n + 5}, 3, width, scale.data(), 1e-6, DType::bf16, {rounded.data(), n});
    for (std::size_t r = 0; r < 3; ++r) {
      const double inverse = exact_inverse_rms(x.data() + r * (n + 5), width, 1e-6);
      for (std::size_t i = 0; i < n; ++i) {
        const double exact = x[r * (n + 5) + i] * inverse * scale[i];
        EXPECT_NEAR(out[r * n + i], exact, kFloat * std::abs(exact) + 1e-12);
        EXPECT_EQ(rounded[r * n + i], round_to_bf16(out[r * n + i]));
      }
    }
  }
}

TEST_P(Pointwise, RmsNormCountsEpsilonOnceWhateverTheWidth) {
  const std::vector<float> x(64, 1e-4f), scale(64, 1.0f);
  std::vector<float> out(64);
  rms_norm({x.data(), 64}, 1, 64, scale.data(), 1e-6, DType::f32, {out.data(), 64});
  EXPECT_NEAR(out[0], 1e-4 / std::sqrt(1e-8 + 1e-6), 1e-6);
}

TEST_P(Pointwise, SigmoidGatedRmsNormNormalisesBeforeTheGateAndRoundsOnce) {
  const std::size_t n = 131;
  const std::vector<float> x = random_values(2 * n, 3), z = random_values(2 * n, 4, 4.0f);
  const std::vector<float> scale = random_values(n, 5);
  std::vector<float> out(2 * n), rounded(2 * n), narrow(x);
  for (float& v : narrow) v = round_to_bf16(v);
  sigmoid_gated_rms_norm({x.data(), n}, {z.data(), n}, 2, n, scale.data(), 1e-5, DType::f32,
                         {out.data(), n});
  sigmoid_gated_rms_norm({x.data(), n}, {z.data(), n}, 2, n, scale.data(), 1e-5, DType::bf16,
                         {rounded.data(), n});
  for (std::size_t r = 0; r < 2; ++r) {
    const double wide = exact_inverse_rms(x.data() + r * n, n, 1e-5);
    const double half = exact_inverse_rms(narrow.data() + r * n, n, 1e-5);
    for (std::size_t i = r * n; i < (r + 1) * n; ++i) {
      const double factor = scale[i - r * n] / (1.0 + std::exp(-static_cast<double>(z[i])));
      EXPECT_NEAR(out[i], x[i] * wide * factor, kFloat * std::abs(out[i]) + 1e-12);
      EXPECT_NEAR(rounded[i], narrow[i] * half * factor, kBf16 * std::abs(rounded[i]) + 1e-12);
    }
  }
}

TEST_P(Pointwise, GatedRmsNormNormalisesBeforeTheGate) {
  const int width = 128;
  const std::vector<float> x = random_values(2 * 128, 3), z = random_values(2 * 128, 4, 4.0f);
  const std::vector<float> scale = random_values(128, 5);
  std::vector<float> out(2 * 128), rounded(2 * 128);
  gated_rms_norm({x.data(), 128}, {z.data(), 128}, 2, width, scale.data(), 1e-6, DType::f32,
                 {out.data(), 128});
  gated_rms_norm({x.data(), 128}, {z.data(), 128}, 2, width, scale.data(), 1e-6, DType::bf16,
                 {rounded.data(), 128});
  for (std::size_t r = 0; r < 2; ++r) {
    const double inverse = exact_inverse_rms(x.data() + r * 128, width, 1e-6);
    for (std::size_t i = 0; i < 128; ++i) {
      const double exact = scale[i] * (x[r * 128 + i] * inverse) * exact_silu(z[r * 128 + i]);
      EXPECT_NEAR(out[r * 128 + i], exact, 2 * kFloat * std::abs(exact) + 1e-12);
      EXPECT_EQ(rounded[r * 128 + i], round_to_bf16(rounded[r * 128 + i]));
      EXPECT_NEAR(rounded[r * 128 + i], exact, 4 * kBf16 * std::abs(exact) + 1e-12);
    }
  }
}

TEST_P(Pointwise, SiluAndSigmoidAreRightFarOutAndKeepNan) {
  const std::vector<float> x = {-1e30f, -200, -90, -30, -1, -0.0f, 1e-20f, 3, 40, 200, 1e30f};
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> silu(x.size()), sigmoid(ones);
  silu_product(x.data(), ones.data(), x.size(), DType::f32, silu.data());
  sigmoid_product({sigmoid.data(), x.size()}, {x.data(), x.size()}, 1, static_cast<int>(x.size()),
                  DType::f32);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(x[i])));
    EXPECT_NEAR(sigmoid[i], exact, 2 * kFloat * exact + 1e-38) << x[i];
    if (std::abs(x[i]) > 1e6f) continue;
    EXPECT_NEAR(silu[i], x[i] * exact, 2 * kFloat * std::abs(x[i] * exact) + 1e-35) << x[i];
  }
  float nan = std::numeric_limits<float>::quiet_NaN(), one = 1.0f;
  float out = 0;
  silu_product(&nan, &one, 1, DType::f32, &out);
  EXPECT_TRUE(std::isnan(out));
  out = 1.0f;
  sigmoid_product({&out, 1}, {&nan, 1}, 1, 1, DType::bf16);
  EXPECT_TRUE(std::isnan(out));
}

TEST_P(Pointwise, ElementsDoNotDependOnTheirPlace) {
  const std::vector<float> gate = random_values(200, 6), up = random_values(200, 7);
  std::vector<float> all(200), one(1);
  silu_product(gate.data(), up.data(), 200, DType::f32, all.data());
  for (std::size_t i = 0; i < 200; ++i) {
    silu_product(gate.data() + i, up.data() + i, 1, DType::f32, one.data());
    ASSERT_EQ(one[0], all[i]) << i;
  }
}

TEST_P(Pointwise, Bf16RoundingIsToNearestEvenAndKeepsInfinityAndNan) {
  std::vector<float> values = random_values(37, 8, 100.0f);
  const float infinity = std::numeric_limits<float>::infinity();
  values.insert(values.end(), {1.00390625f, 1.01171875f, infinity, -infinity, 0.0f, -0.0f,
                               std::numeric_limits<float>::max(), 1e-40f});
  std::vector<float> rounded = values;
  round_to_bf16(rounded.data(), rounded.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(rounded[i], round_to_bf16(values[i]));
  float nan = std::numeric_limits<float>::quiet_NaN();
  round_to_bf16(&nan, 1);
  EXPECT_TRUE(std::isnan(nan));
}

TEST_P(Pointwise, ResidualSumsAreRoundedOnce) {
  const std::vector<float> x = random_values(45, 9), y = random_values(45, 10);
  std::vector<float> sum = x;
  add_rows(sum.data(), y.data(), 45, DType::bf16);
  for (std::size_t i = 0; i < 45; ++i) EXPECT_EQ(sum[i], round_to_bf16(x[i] + y[i]));
}

}  // namespace
}  // namespace replayssm
