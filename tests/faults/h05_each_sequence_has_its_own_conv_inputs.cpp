// H05. vllm-project/vllm#28436: Kimi-Linear's convolution state was found through wrong indices.
// Two sequences over the channels of a KDA layer, in rows and slots that cross, are each as alone,
// and q, k and v convolved apart are what they are convolved together.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

constexpr HeadShape kShape{GateKind::kda, 2, 2};

// Convolution memory of two rows and two slots, NaN at first; row r stands in slot 1 - r.
class ConvLayer {
 public:
  ConvLayer(LinearOps& ops, int channels)
      : ops_(ops),
        channels_(channels),
        ring_(2 * geometry_.conv_rows() * static_cast<std::size_t>(channels), std::nanf("")),
        tail_(2 * 3 * static_cast<std::size_t>(channels), std::nanf("")) {}

  // Tokens [count, channels] of each row in `inputs`, by row; outputs in the same order.
  std::vector<float> step(const std::vector<std::pair<int, std::vector<float>>>& inputs,
                          const std::vector<float>& weight, bool chunk) {
    std::vector<float> x;
    std::vector<RowTokens> rows;
    std::vector<int> accepted;
    int first = 0;
    for (const auto& [row, values] : inputs) {
      const int count = static_cast<int>(values.size()) / channels_;
      rows.push_back({RowIndex{row}, first, count, chunk ? Phase::prefill : Phase::verify});
      accepted.push_back(count);
      x.insert(x.end(), values.begin(), values.end());
      first += count;
    }
    std::vector<float> out(x.size(), std::nanf(""));
    const CursorView cursors{committed_, checkpoint_, base_, home_, 2};
    const ConvArgs args{
        geometry_,
        Recurrence::replay,
        {ring_.data(), DType::f32, 2, geometry_.conv_rows(), channels_},
        {tail_.data(), DType::f32, 3 * static_cast<std::size_t>(channels_), 2, channels_},
        cursors,
        rows,
        weight.data(),
        x.data(),
        out.data()};
    EXPECT_TRUE((chunk ? ops_.conv_chunk(args) : ops_.conv_window(args)).ok());
    EXPECT_TRUE(ops_.advance({geometry_, Recurrence::replay, cursors, rows, accepted}).ok());
    return out;
  }

 private:
  LinearOps& ops_;
  FoldGeometry geometry_ = FoldGeometry::make(8, 4).value();
  int channels_;
  std::vector<float> ring_, tail_;
  Depth committed_[2], checkpoint_[2];
  SlotId base_[2] = {SlotId{1}, SlotId{0}}, home_[2] = {SlotId{1}, SlotId{0}};
};

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(H05, TwoSequencesInCrossedRowsAndSlotsAreEachAsAlone) {
  const int channels = kShape.channels();
  const auto weight = random_values(static_cast<std::size_t>(channels) * kConvWidth, 1);
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    ConvLayer both(*owned.ops, channels), first(*owned.ops, channels), second(*owned.ops, channels);
    for (unsigned i = 0; i < 30; ++i) {  // windows of 1 to 4 and chunks, over several folds
      const bool chunk = i % 5 == 4;
      const std::size_t count = chunk ? 11 : 1 + i % 4;
      const auto a = random_values(count * static_cast<std::size_t>(channels), 100 + i);
      const auto b = random_values(count * static_cast<std::size_t>(channels), 200 + i);
      auto expected = first.step({{0, a}}, weight, chunk);
      const auto other = second.step({{1, b}}, weight, chunk);
      expected.insert(expected.end(), other.begin(), other.end());
      ASSERT_TRUE(same_bits(both.step({{0, a}, {1, b}}, weight, chunk), expected))
          << backend.name << " step " << i;
    }
  }
}

TEST(H05, QueriesKeysAndValuesApartAreAsTogether) {
  const int channels = kShape.channels();
  const int widths[] = {kShape.key_heads * kKeyDim, kShape.key_heads * kKeyDim,
                        kShape.value_heads * kValueDim};
  const auto weight = random_values(static_cast<std::size_t>(channels) * kConvWidth, 1);
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    ConvLayer whole(*owned.ops, channels);
    std::vector<ConvLayer> parts;
    for (const int width : widths) parts.emplace_back(*owned.ops, width);
    for (unsigned i = 0; i < 12; ++i) {
      const auto x = random_values(4 * static_cast<std::size_t>(channels), 300 + i);
      const auto together = whole.step({{0, x}}, weight, false);
      int from = 0;
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const auto cut = [&](const std::vector<float>& values) {
          std::vector<float> columns;
          for (int t = 0; t < 4; ++t) {
            const auto row = values.begin() + t * channels + from;
            columns.insert(columns.end(), row, row + widths[p]);
          }
          return columns;
        };
        const auto part_weight = std::vector<float>(
            weight.begin() + from * kConvWidth, weight.begin() + (from + widths[p]) * kConvWidth);
        ASSERT_TRUE(same_bits(parts[p].step({{0, cut(x)}}, part_weight, false), cut(together)))
            << backend.name << " part " << p;
        from += widths[p];
      }
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
