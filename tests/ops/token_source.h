// Random tokens for operation tests: what the projections of a layer would hand over.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/bfloat16.h"
#include "ops/shape.h"

namespace replayssm::tests {

struct TokenOptions {
  // Log gates lie between -2 * mean_decay and 0, uniformly.
  float mean_decay = 0.03f;
  // Keys, queries and values are bf16 values, as in a bf16 model.
  bool bf16_values = false;
};

// `count` tokens of one sequence: qkv [count, channels], gate [count, HV, gate_width],
// beta [count, HV]. Token i depends on the seed and i alone.
struct Tokens {
  HeadShape shape;
  int count = 0;
  std::vector<float> qkv, gate, beta;

  std::size_t gate_stride() const {
    return static_cast<std::size_t>(shape.value_heads) * shape.gate_width();
  }
  std::size_t out_stride() const { return static_cast<std::size_t>(shape.value_heads) * kValueDim; }
};

inline Tokens make_tokens(const HeadShape& shape, int count, std::uint32_t seed,
                          const TokenOptions& options = {}) {
  Tokens tokens{shape, count, {}, {}, {}};
  for (int i = 0; i < count; ++i) {
    std::mt19937 random(seed * 7919u + static_cast<std::uint32_t>(i));
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(0, 1);
    for (int c = 0; c < shape.channels(); ++c) {
      const float x = normal(random);
      tokens.qkv.push_back(options.bf16_values ? round_to_bf16(x) : x);
    }
    for (std::size_t c = 0; c < tokens.gate_stride(); ++c) {
      tokens.gate.push_back(-2 * options.mean_decay * uniform(random));
    }
    for (int h = 0; h < shape.value_heads; ++h) tokens.beta.push_back(uniform(random));
  }
  return tokens;
}

}  // namespace replayssm::tests
