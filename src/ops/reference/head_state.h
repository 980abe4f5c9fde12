// One value head in float64: its state, its inputs and the recurrence, token by token.
#pragma once

#include <cmath>
#include <vector>

#include "core/bfloat16.h"
#include "ops/linear_ops.h"

namespace replayssm::reference {

// Matrix [V, K] of one value head.
using HeadState = std::vector<double>;

inline HeadState zero_state() { return HeadState(kValueDim * kKeyDim, 0.0); }

// L2-normalised copy of K raw values times `scale`: x * scale / sqrt(sum x^2 + 1e-6).
inline std::vector<double> normalised(const std::vector<double>& raw, double scale) {
  double sum = 0;
  for (double x : raw) sum += x * x;
  const double factor = scale / std::sqrt(sum + 1e-6);
  std::vector<double> unit(raw);
  for (double& x : unit) x *= factor;
  return unit;
}

// What a token brings to one value head.
struct HeadToken {
  std::vector<double> key;    // [K] normalised
  std::vector<double> query;  // [K] normalised, scaled by K^-1/2
  std::vector<double> value;  // [V]
  std::vector<double> gate;   // [K] log decay; a GDN gate repeated
  double beta = 0;
};

// S <- S diag(exp(gate))
inline void decay(HeadState& state, const std::vector<double>& gate) {
  double factor[kKeyDim];
  for (int k = 0; k < kKeyDim; ++k) factor[k] = std::exp(gate[k]);
  for (int v = 0; v < kValueDim; ++v) {
    for (int k = 0; k < kKeyDim; ++k) state[v * kKeyDim + k] *= factor[k];
  }
}

// S x
inline std::vector<double> read(const HeadState& state, const std::vector<double>& x) {
  std::vector<double> y(kValueDim, 0.0);
  for (int v = 0; v < kValueDim; ++v) {
    for (int k = 0; k < kKeyDim; ++k) y[v] += state[v * kKeyDim + k] * x[k];
  }
  return y;
}

// S <- S + d k^T
inline void write(HeadState& state, const std::vector<double>& correction,
                  const std::vector<double>& key) {
  for (int v = 0; v < kValueDim; ++v) {
    for (int k = 0; k < kKeyDim; ++k) state[v * kKeyDim + k] += correction[v] * key[k];
  }
}

// One token: updates the state, returns d; `out` [V] gets the output.
inline std::vector<double> step(HeadState& state, const HeadToken& token, float* out) {
  decay(state, token.gate);
  std::vector<double> correction = read(state, token.key);
  for (int v = 0; v < kValueDim; ++v) {
    correction[v] = token.beta * (token.value[v] - correction[v]);
  }
  write(state, correction, token.key);
  const std::vector<double> output = read(state, token.query);
  for (int v = 0; v < kValueDim; ++v) out[v] = static_cast<float>(output[v]);
  return correction;
}

// A raw key as the ring keeps it.
inline double as_stored(float x, DType type) { return type == DType::bf16 ? round_to_bf16(x) : x; }

}  // namespace replayssm::reference
