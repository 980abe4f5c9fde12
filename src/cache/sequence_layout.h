// How many bytes a sequence needs where, from shapes alone. The memory plan and the pools both use
// these numbers, so that what is planned is what is allocated, to the byte.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ops/linear_ops.h"
#include "ops/shape.h"
#include "replay/geometry.h"

namespace replayssm {

struct SequenceLayout {
  int linear_layers = 0;
  int attention_layers = 0;
  HeadShape heads;       // of the linear layers
  int draft_layers = 0;  // attention layers of a draft head, of the same shape
  int kv_heads = 0;      // of the attention layers
  int head_dim = 0;
  FoldGeometry geometry;
  Recurrence recurrence = Recurrence::replay;
  DType state_type = DType::f32;       // states in slots
  DType correction_type = DType::f32;  // d in record rings
  DType activation_type = DType::f32;  // keys in record rings, conv inputs, KV
  int page_tokens = 16;

  // One layer's state in a slot: [value_heads, V, K] elements in the backend's order.
  std::int64_t state_bytes() const;
  // One layer's conv tail in a slot: [3, channels].
  std::int64_t tail_bytes() const;
  // A slot: the states of all linear layers, then their conv tails.
  std::int64_t slot_bytes() const;

  // One record of one layer: keys and their scales, corrections, gates.
  std::int64_t record_bytes() const;
  // The record rings of one row over all linear layers; 0 with replay off.
  std::int64_t ring_bytes_per_row() const;
  // The conv rings of one row over all linear layers.
  std::int64_t conv_ring_bytes_per_row() const;
  // t, c, base and home of one row.
  std::int64_t cursor_bytes_per_row() const;

  // Those of the model, then those of a draft head.
  int kv_layers() const { return attention_layers + draft_layers; }
  // Keys and values of one position over all of them.
  std::int64_t kv_bytes_per_token() const;
  std::int64_t page_bytes() const;
  // Pages of the first `tokens` positions, and those of them that are full. None where a position
  // has no keys and values.
  int pages_for(std::int64_t tokens) const;
  int full_pages(std::int64_t tokens) const;
};

}  // namespace replayssm
