// The bytes that an operation has to move, whatever the implementation: the yardstick of every
// benchmark. Floor = bytes / copy ceiling.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "ops/shape.h"

namespace replayssm::bench {

// One layer. s bytes a state element, D bytes an element of d, gate bytes 4 (GDN) or 512 (KDA).
struct FloorShape {
  HeadShape heads;
  DType state = DType::f32;

  double s() const { return static_cast<double>(size_of(state)); }
  double gate() const { return 4.0 * heads.gate_width(); }
  double hv() const { return heads.value_heads; }
  double h() const { return heads.key_heads; }
  double state_bytes() const { return hv() * kKeyDim * kValueDim * s(); }
  // One token's record: d and gate per value head; bf16 key and its fp32 scale per key head.
  double record() const { return hv() * (kValueDim * s() + gate()) + h() * 260; }
  // One token's q, k, v, gate, beta and o, with bf16 activations.
  double io() const { return hv() * (512 + gate() + 4) + h() * 512; }
};

// d is as wide as the state: bf16 with bf16, fp32 with fp32.
inline double packed_bytes(const FloorShape& f, double batch) {
  return batch * (f.state_bytes() * 2 + f.io());
}

// Amortised over a ring cycle: (L + 1) / 2 live records on average.
inline double decode_bytes(const FloorShape& f, double batch, double fold_block) {
  return batch * (f.state_bytes() * (1 + 1 / fold_block) + (fold_block + 1) / 2 * f.record() +
                  f.record() + f.io());
}

inline double verify_bytes(const FloorShape& f, double batch, double fold_block, double window,
                           double history, double accepted) {
  return batch * (f.state_bytes() * (1 + accepted / fold_block) + history * f.record() +
                  window * (f.record() + f.io()));
}

inline double fold_bytes(const FloorShape& f, double batch, double layers, double records) {
  return batch * layers * (f.state_bytes() * 2 + records * f.record());
}

// bf16 inputs and outputs: three rows read; T inputs read, T ring rows and T outputs written. A
// chunk of more tokens than the ring has rows writes those only.
inline double conv_bytes(const HeadShape& heads, double batch, double window, double conv_rows) {
  const double channels = heads.channels();
  return batch * (channels * 2 * (3 + 2 * window + std::min(window, conv_rows)) + channels * 8);
}

}  // namespace replayssm::bench
