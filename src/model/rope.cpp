#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/bfloat16.h"

namespace replayssm {
namespace {

// The (fractional) pair index whose frequency turns `turns` times within the original context.
double pair_turning(const RopeConfig& config, double turns) {
  const double wavelength = config.original_max_positions / (turns * 2.0 * std::numbers::pi);
  return config.rotary_dim * std::log(wavelength) / (2.0 * std::log(config.theta));
}

float stored(float value, DType type) { return type == DType::bf16 ? round_to_bf16(value) : value; }

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& config) {
  const int pairs = config.rotary_dim / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(pairs));
  double low = 0, high = 0;
  if (config.kind == RopeKind::yarn) {
    low = pair_turning(config, config.beta_fast);
    high = pair_turning(config, config.beta_slow);
    if (config.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(config.rotary_dim - 1));
    if (low == high) high += 0.001;  // a step instead of a ramp
  }
  for (int i = 0; i < pairs; ++i) {
    const double plain = std::pow(config.theta, -2.0 * i / config.rotary_dim);
    double frequency = plain;
    if (config.kind == RopeKind::yarn) {
      const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
      frequency = plain / config.factor * stretched + plain * (1.0 - stretched);
    }
    frequencies[static_cast<std::size_t>(i)] = static_cast<float>(frequency);
  }
  return frequencies;
}

void rope_angles(const std::vector<float>& frequencies, double attention_factor, Depth position,
                 DType type, float* cosine, float* sine) {
  const auto factor = static_cast<float>(attention_factor);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position.tokens) * frequencies[i];
    cosine[i] = stored(std::cos(angle) * factor, type);
    sine[i] = stored(std::sin(angle) * factor, type);
  }
}

void rotate(float* head, int pairs, const float* cosine, const float* sine, DType type) {
  float* first = head;
  float* second = head + pairs;
  for (int i = 0; i < pairs; ++i) {
    const float a = first[i];
    const float b = second[i];
    first[i] = stored(stored(a * cosine[i], type) - stored(b * sine[i], type), type);
    second[i] = stored(stored(b * cosine[i], type) + stored(a * sine[i], type), type);
  }
}

}  // namespace replayssm
