// Views of the memory that the operations work on. A view owns nothing; whoever made it keeps the
// memory alive until the operations that were given it have finished. Memory indexed by row and
// memory indexed by slot have different types and are never interchangeable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/strong_id.h"
#include "ops/shape.h"
#include "replay/depth.h"
#include "replay/geometry.h"

namespace replayssm {

// One layer's part of the slot pool. The order of elements within a slot belongs to the backend;
// LinearOps::export_state and import_state convert to [value_heads, V, K].
struct StateView {
  void* data = nullptr;
  DType type = DType::f32;      // f32 or bf16; f64 on the reference backend
  std::size_t slot_stride = 0;  // elements from one slot to the next, >= state_elements()
  int slots = 0;
};

// One layer's record rings. Row r of a ring holds the record of the newest position i with
// i mod R == r.
struct RingView {
  void* keys = nullptr;                // [rows, key_heads, R, K], raw (not normalised) activations
  DType key_type = DType::f32;         // f32, or bf16 where activations are bf16 values
  float* key_scales = nullptr;         // [rows, key_heads, R], inverse L2 norm of the key
  void* corrections = nullptr;         // [rows, value_heads, R, V], corrected values d
  DType correction_type = DType::f32;  // f32 with an f32 state
  float* gates = nullptr;              // [rows, value_heads, R, gate_width], LinearOps::gate_form
  int rows = 0;
  int ring_rows = 0;  // R, FoldGeometry::ring_rows()
};

// One layer's rings of pre-activation conv inputs, addressed by position: row i mod conv_rows.
struct ConvRingView {
  void* inputs = nullptr;   // [rows, conv_rows, channels]
  DType type = DType::f32;  // f32, or bf16 where activations are bf16 values
  int rows = 0;
  int conv_rows = 0;  // FoldGeometry::conv_rows()
  int channels = 0;
};

// One layer's conv tails: the inputs at c-3, c-2, c-1 beside each slot's checkpoint of depth c.
struct ConvTailView {
  void* inputs = nullptr;       // [slots, 3, channels]
  DType type = DType::f32;      // as the conv ring
  std::size_t slot_stride = 0;  // elements from one slot to the next, >= 3 * channels
  int slots = 0;
  int channels = 0;
};

// Where each row stands; one set for all layers. Written by `advance` only (and by whoever admits
// a sequence to a row between steps).
struct CursorView {
  Depth* committed = nullptr;   // [rows] t
  Depth* checkpoint = nullptr;  // [rows] c
  SlotId* base = nullptr;       // [rows] slot the checkpoint is read from; not read at c == 0
  SlotId* home = nullptr;       // [rows] slot the next fold is written to; may equal base
  int rows = 0;
  // A row whose base is the null slot for good, with no part of any ring; none: no such row. A step
  // may name it for any number of rows.
  RowIndex null_row{};
};

// What a row does in a step. It is said, never inferred from a number of tokens.
enum class Phase { prefill, decode, verify };

// The tokens of one row in a step, packed one row after the other: entries
// [first_token, first_token + tokens) of every per-token array. A row appears at most once.
struct RowTokens {
  RowIndex row;
  int first_token = 0;
  int tokens = 0;
  Phase phase = Phase::decode;  // prefill rows are chunks, the others windows
};

}  // namespace replayssm
