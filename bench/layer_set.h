// The memory of one linear layer for a batch of rows, with random contents: what an operation is
// timed and checked on.
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned_buffer.h"
#include "ops/linear_ops.h"
#include "replay/cursor.h"

namespace replayssm::bench {

// A small, fast, seeded generator; equal seeds give equal data on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  float uniform(float low, float high) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return low + (high - low) * static_cast<float>(state_ >> 40) * 0x1p-24f;
  }

 private:
  std::uint64_t state_;
};

struct SetOptions {
  HeadShape heads;
  FoldGeometry geometry;
  DType state = DType::f32;  // as asked for; the backend may keep it wider
  DType key = DType::bf16;
  int rows = 1;
  int tokens_per_row = 1;  // inputs held per row
  std::uint64_t seed = 1;
};

// Owns states (one slot a row, base == home), rings, conv rings and tails, cursors at depth 0, and
// inputs. Equal options give equal inputs whatever the backend.
class LayerSet {
 public:
  LayerSet(const SetOptions& options, const LinearOps& ops);

  // Places every row at committed t, checkpoint c, with random finite records and state.
  void place(std::size_t row, Cursor cursor);

  StepArgs step(std::span<const RowTokens> rows) const;
  ConvArgs conv(std::span<const RowTokens> rows) const;
  std::span<const float> outputs() const { return out_.span(); }
  std::span<const float> conv_outputs() const { return conv_out_.span(); }
  StateView states() const;
  RingView rings() const;
  CursorView cursors() const;
  // Bytes of the states of all rows.
  std::size_t state_bytes() const { return states_.bytes(); }
  const SetOptions& options() const { return options_; }

 private:
  SetOptions options_;
  DType state_type_;
  DType correction_type_;
  GateForm gate_form_;
  mutable AlignedBuffer<std::byte> states_;
  mutable AlignedBuffer<std::byte> keys_;
  mutable AlignedBuffer<float> key_scales_;
  mutable AlignedBuffer<std::byte> corrections_;
  mutable AlignedBuffer<float> gates_;
  mutable AlignedBuffer<std::byte> conv_inputs_;
  mutable AlignedBuffer<std::byte> conv_tails_;
  mutable std::vector<Depth> committed_;
  mutable std::vector<Depth> checkpoint_;
  mutable std::vector<SlotId> base_;
  mutable std::vector<SlotId> home_;
  AlignedBuffer<float> qkv_;
  AlignedBuffer<float> gate_;
  AlignedBuffer<float> beta_;
  AlignedBuffer<float> conv_weight_;
  mutable AlignedBuffer<float> out_;
  mutable AlignedBuffer<float> conv_out_;
};

}  // namespace replayssm::bench
