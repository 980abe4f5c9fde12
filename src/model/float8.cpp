#include "model/float8.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace replayssm {
namespace {

std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
  }
  return values;
}

Status check_scales(std::span<const float> scales, std::int64_t columns) {
  const auto wrong = std::find_if(scales.begin(), scales.end(),
                                  [](float s) { return !std::isfinite(s) || s < 0; });
  if (wrong == scales.end()) return {};
  const std::int64_t at = wrong - scales.begin();
  return refuse(fmt::format("scale of block [{}, {}]", at / columns, at % columns), *wrong,
                "a finite number that is not negative");
}

// each(index, value) for every element; errors as of dequantise_float8().
template <class Each>
Status each_value(std::span<const std::byte> codes, std::int64_t rows, std::int64_t cols,
                  std::span<const float> scales, Each&& each) {
  static const std::array<float, 256> kValues = e4m3_values();
  const std::int64_t columns = float8_blocks(cols);
  REPLAYSSM_TRY(check_scales(scales, columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t block = 0; block < columns; ++block) {
      const float scale = scales[static_cast<std::size_t>(r / kFloat8Block * columns + block)];
      const std::int64_t end = std::min(cols, (block + 1) * kFloat8Block);
      for (std::int64_t c = block * kFloat8Block; c < end; ++c) {
        const auto at = static_cast<std::size_t>(r * cols + c);
        const float value = kValues[std::to_integer<std::size_t>(codes[at])];
        const bf16 rounded = to_bf16(value * scale);
        if (!std::isfinite(to_float(rounded))) {
          return refuse(fmt::format("element [{}, {}]", r, c),
                        fmt::format("{} times the scale {}", value, scale),
                        "a number that bfloat16 holds");
        }
        each(at, rounded);
      }
    }
  }
  return {};
}

}  // namespace

float e4m3_to_float(std::uint8_t code) {
  constexpr int kBias = 7;
  constexpr int kFractionBits = 3;
  const int exponent = code >> kFractionBits & 0xf;
  const int fraction = code & 0x7;
  if (exponent == 0xf && fraction == 0x7) return std::nanf("");
  const float magnitude =
      exponent == 0
          ? std::ldexp(static_cast<float>(fraction), 1 - kBias - kFractionBits)
          : std::ldexp(static_cast<float>(8 + fraction), exponent - kBias - kFractionBits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

Status dequantise_float8(std::span<const std::byte> codes, std::int64_t rows, std::int64_t cols,
                         std::span<const float> scales, bf16* out) {
  return each_value(codes, rows, cols, scales,
                    [&](std::size_t at, bf16 value) { out[at] = value; });
}

Status check_float8(std::span<const std::byte> codes, std::int64_t rows, std::int64_t cols,
                    std::span<const float> scales) {
  return each_value(codes, rows, cols, scales, [](std::size_t, bf16) {});
}

}  // namespace replayssm
