// bfloat16 and float16 as storage formats: 16 bits in memory, float in arithmetic.
#pragma once

#include <bit>
#include <cstdint>

namespace replayssm {

// The upper half of an IEEE binary32. Conversion from float rounds to nearest, ties to even; NaN
// stays NaN.
struct bf16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

constexpr bf16 to_bf16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return bf16{static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// The nearest value that bf16 can hold, as a float.
constexpr float round_to_bf16(float x) { return to_float(to_bf16(x)); }

// IEEE binary16 bits to float (exact; subnormals, infinities and NaN included).
constexpr float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fu;
  const std::uint32_t fraction = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace replayssm
