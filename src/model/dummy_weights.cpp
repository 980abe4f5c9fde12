#include "model/dummy_weights.h"

#include <algorithm>
#include <cmath>

#include "core/random_stream.h"

namespace replayssm {
namespace {

std::uint64_t seed_of(std::string_view name) {
  std::uint64_t seed = 0;
  for (const char c : name) seed = mix_bits(seed + static_cast<unsigned char>(c) + 1);
  return seed;
}

}  // namespace

AlignedBuffer<std::byte> dummy_matrix(std::string_view name, std::int64_t rows, std::int64_t cols) {
  const auto elements = static_cast<std::size_t>(rows * cols);
  AlignedBuffer<std::byte> buffer(elements * sizeof(bf16));
  auto* out = reinterpret_cast<bf16*>(buffer.data());
  const float half_width = std::sqrt(3.0f / static_cast<float>(cols));
  // Four numbers of 16 bits from one draw: a model has billions.
  const float scale = half_width / 32768.0f;
  const std::uint64_t seed = seed_of(name);
  for (std::size_t i = 0; i < elements; i += 4) {
    std::uint64_t bits = mix_bits(seed + i);
    for (std::size_t j = i; j < std::min(i + 4, elements); ++j, bits >>= 16) {
      out[j] = to_bf16(static_cast<float>(static_cast<std::int16_t>(bits & 0xffff)) * scale);
    }
  }
  return buffer;
}

std::vector<float> dummy_vector(std::string_view name, std::int64_t elements, float added) {
  const std::uint64_t seed = seed_of(name);
  std::vector<float> out(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto uniform = static_cast<float>(uniform_at(seed, i));
    if (name.ends_with("norm.weight") || name.find("_norm_") != std::string_view::npos) {
      out[i] = 1.0f;
    } else if (name.ends_with("A_log")) {
      out[i] = std::log(1.0f + 15.0f * uniform) + added;
    } else if (name.ends_with("dt_bias")) {
      const float step = std::exp(std::log(1e-3f) + uniform * std::log(1e2f));
      out[i] = std::log(std::expm1(step)) + added;
    } else {
      out[i] = uniform - 0.5f + added;
    }
  }
  return out;
}

}  // namespace replayssm
