// One linear layer's states, rings and inputs for a batch of rows, with random contents: what an
// operation is timed and checked on.
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

// States (one slot a row, base == home), rings, conv rings and tails, cursors at depth 0, and
// inputs. Equal options give equal inputs whatever the backend. Move it never: views point into it.
class LayerSet {
 public:
  // In memory of its own.
  LayerSet(const SetOptions& options, const LinearOps& ops);
  // In `memory`, zeroed, of bytes_of(options, ops) bytes, which outlives the set: many layers then
  // lie in one large buffer, as in an engine's pools.
  LayerSet(const SetOptions& options, const LinearOps& ops, std::byte* memory);
  LayerSet(const LayerSet&) = delete;
  LayerSet& operator=(const LayerSet&) = delete;

  static std::size_t bytes_of(const SetOptions& options, const LinearOps& ops);

  // Places every row at committed t, checkpoint c, with random finite records and state.
  void place(std::size_t row, Cursor cursor);

  StepArgs step(std::span<const RowTokens> rows) const;
  ConvArgs conv(std::span<const RowTokens> rows) const;
  std::span<const float> outputs() const { return part_.out; }
  std::span<const float> conv_outputs() const { return part_.conv_out; }
  StateView states() const;
  RingView rings() const;
  CursorView cursors() const;
  const SetOptions& options() const { return options_; }

 private:
  struct Parts {
    std::span<std::byte> states, keys, corrections, conv_inputs, conv_tails;
    std::span<float> key_scales, gates, qkv, gate, beta, conv_weight, out, conv_out;
  };
  // Lays the parts out from `memory` on; with null only their sizes count. Returns the bytes taken.
  static std::size_t lay_out(const SetOptions& options, DType state, std::byte* memory,
                             Parts& parts);

  AlignedBuffer<std::byte> own_;
  SetOptions options_;
  DType state_type_;  // also of corrections
  GateForm gate_form_;
  Parts part_;
  mutable std::vector<Depth> committed_;
  mutable std::vector<Depth> checkpoint_;
  mutable std::vector<SlotId> base_;
  mutable std::vector<SlotId> home_;
};

}  // namespace replayssm::bench
