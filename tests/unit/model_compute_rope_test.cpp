#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/bfloat16.h"
#include "model/rope.h"

namespace replayssm {
namespace {

RopeConfig plain() {
  RopeConfig config;
  config.theta = 1e7;
  config.rotary_dim = 64;
  return config;
}

TEST(Rope, PlainFrequenciesFallGeometrically) {
  const std::vector<float> f = rope_frequencies(plain());
  ASSERT_EQ(f.size(), 32u);
  for (std::size_t i = 0; i < f.size(); ++i) {
    const double exact = std::pow(1e7, -2.0 * static_cast<double>(i) / 64.0);
    EXPECT_NEAR(f[i], exact, 1e-7 * exact);
  }
}

TEST(Rope, YarnKeepsFastPairsAndDividesSlowOnes) {
  RopeConfig config = plain();
  config.kind = RopeKind::yarn;
  config.factor = 4.0;
  config.original_max_positions = 262144;
  const std::vector<float> f = rope_frequencies(config);
  const std::vector<float> before = rope_frequencies(plain());
  EXPECT_EQ(f.front(), before.front());
  EXPECT_NEAR(f.back(), before.back() / 4.0f, 1e-6f * f.back());
  for (std::size_t i = 0; i < f.size(); ++i) {
    EXPECT_LE(f[i], before[i]);
    EXPECT_GE(f[i], before[i] / 4.0f * (1.0f - 1e-6f));
  }
}

TEST(Rope, RotatesHalvesAndLeavesTheRestAlone) {
  const std::vector<float> frequencies = {1.0f, 0.25f};
  float cosine[2], sine[2];
  rope_angles(frequencies, 1.5, Depth{3}, DType::f32, cosine, sine);
  float head[6] = {1, 2, 3, 4, 5, 6};
  rotate(head, 2, cosine, sine, DType::f32);
  const double angles[] = {3.0, 0.75};
  for (int i = 0; i < 2; ++i) {
    const double c = 1.5 * std::cos(angles[i]), s = 1.5 * std::sin(angles[i]);
    const double a = 1 + i, b = 3 + i;
    EXPECT_NEAR(head[i], a * c - b * s, 1e-6);
    EXPECT_NEAR(head[i + 2], b * c + a * s, 1e-6);
  }
  EXPECT_EQ(head[4], 5.0f);
  EXPECT_EQ(head[5], 6.0f);
}

TEST(Rope, Bf16RoundsAnglesProductsAndSums) {
  const std::vector<float> frequencies = {0.7f};
  float cosine, sine;
  rope_angles(frequencies, 1.0, Depth{5}, DType::bf16, &cosine, &sine);
  EXPECT_EQ(cosine, round_to_bf16(std::cos(5 * 0.7f)));
  EXPECT_EQ(sine, round_to_bf16(std::sin(5 * 0.7f)));
  float head[2] = {1.5f, -0.75f};
  rotate(head, 1, &cosine, &sine, DType::bf16);
  EXPECT_EQ(head[0], round_to_bf16(round_to_bf16(1.5f * cosine) - round_to_bf16(-0.75f * sine)));
  EXPECT_EQ(head[1], round_to_bf16(round_to_bf16(-0.75f * cosine) + round_to_bf16(1.5f * sine)));
}

}  // namespace
}  // namespace replayssm
