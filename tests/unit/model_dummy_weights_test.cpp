// random_weights: what load_weights would give, with values that a model can compute with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <variant>

#include "model/dummy_weights.h"
#include "model/weights.h"
#include "source_dir.h"

namespace replayssm {
namespace {

class DummyWeights : public ::testing::TestWithParam<const char*> {};

TEST_P(DummyWeights, HaveTheShapesOfTheCheckpoints) {
  const auto directory = source_dir() / "tests/data/model" / GetParam();
  const auto config = load_config(directory);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto stored = load_weights(directory, *config);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  const auto random = random_weights(*config);
  ASSERT_TRUE(random.ok()) << random.error().message;
  const auto expect_same_shape = [](const WeightMatrix& a, const WeightMatrix& b) {
    EXPECT_EQ(a.rows, b.rows);
    EXPECT_EQ(a.cols, b.cols);
    EXPECT_EQ(a.type, DType::bf16);
  };
  expect_same_shape(random->embedding, stored->embedding);
  expect_same_shape(random->head, stored->head);
  EXPECT_EQ(random->head.data == random->embedding.data, config->tied_head);
  ASSERT_EQ(random->layers.size(), stored->layers.size());
  for (std::size_t i = 0; i < random->layers.size(); ++i) {
    const LayerWeights& layer = random->layers[i];
    EXPECT_EQ(layer.mixer.index(), stored->layers[i].mixer.index());
    EXPECT_EQ(layer.mixer_norm_scale,
              std::vector<float>(stored->layers[i].mixer_norm_scale.size(), 1.0f));
    expect_same_shape(layer.mlp.down, stored->layers[i].mlp.down);
    if (const auto* gdn = std::get_if<GdnWeights>(&layer.mixer)) {
      for (std::size_t head = 0; head < gdn->a_log.size(); ++head) {
        EXPECT_GE(gdn->a_log[head], 0.0f);
        EXPECT_LE(gdn->a_log[head], std::log(16.0f));
        // The step that a gate's input of zero gives: 0.001 to 0.1.
        const float step = std::log1p(std::exp(gdn->dt_bias[head]));
        EXPECT_GT(step, 0.99e-3f);
        EXPECT_LT(step, 1.01e-1f);
      }
      EXPECT_EQ(gdn->norm_scale, std::vector<float>(gdn->norm_scale.size(), 1.0f));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DummyWeights,
                         ::testing::Values("ratio3_bfloat16_flat_untied",
                                           "ratio1_float32_flat_tied", "kda_hybrid_bfloat16_tied",
                                           "next_ratio2_bfloat16_untied"));

TEST(DummyMatrix, KeepsTheSizeOfWhatItIsMultipliedWithAndIsTheSameEveryTime) {
  const auto matrix = dummy_matrix("a.weight", 33, 1001);
  const auto again = dummy_matrix("a.weight", 33, 1001);
  const auto other = dummy_matrix("b.weight", 33, 1001);
  EXPECT_EQ(std::memcmp(matrix.data(), again.data(), matrix.bytes()), 0);
  EXPECT_NE(std::memcmp(matrix.data(), other.data(), matrix.bytes()), 0);
  const auto* values = reinterpret_cast<const bf16*>(matrix.data());
  double mean = 0;
  double square = 0;
  constexpr int kCount = 33 * 1001;
  for (int i = 0; i < kCount; ++i) {
    const double x = to_float(values[i]);
    mean += x / kCount;
    square += x * x * 1001 / kCount;
  }
  // Four standard deviations of a mean of so many uniform numbers, and of their squares.
  EXPECT_NEAR(mean, 0, 4 / std::sqrt(1001.0 * kCount));
  EXPECT_NEAR(square, 1, 4 * std::sqrt(0.8 / kCount));
}

}  // namespace
}  // namespace replayssm
