// How many bytes a sequence needs where, from shapes alone. The memory plan and the pools both use
// these numbers, so that what is planned is what is allocated, to the byte.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ops/linear_ops.h"
#include "ops/shape.h"
#include "replay/geometry.h"

namespace replayssm {

// Attention layers of a drafter, whose keys and values lie behind the model's in the same pages.
struct DraftLayers {
  int count = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int first_position = 0;  // tokens before it have no row
  bool on_host = false;    // in the host's memory, wherever the model's layers are
};

struct SequenceLayout {
  int linear_layers = 0;
  int attention_layers = 0;
  HeadShape heads;   // of the linear layers
  int kv_heads = 0;  // of the attention layers
  int head_dim = 0;
  DraftLayers draft;
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
  // One layer's conv ring of one row.
  std::int64_t conv_ring_bytes() const;
  // The conv rings of one row over all linear layers.
  std::int64_t conv_ring_bytes_per_row() const;
  // t, c, base and home of one row.
  std::int64_t cursor_bytes_per_row() const;

  // Those of the model, then those of a drafter.
  int kv_layers() const { return attention_layers + draft.count; }
  bool is_draft_layer(int layer) const { return layer >= attention_layers; }
  // Keys (or values) of one position in one of them.
  std::int64_t kv_row_bytes(int layer) const;
  // Keys and values of one position over all of them.
  std::int64_t kv_bytes_per_token() const;
  // The part of it that is in the host's memory because of draft.on_host.
  std::int64_t host_kv_bytes_per_token() const;
  std::int64_t page_bytes() const;
  // Pages of the first `tokens` positions, and those of them that are full. None where a position
  // has no keys and values.
  int pages_for(std::int64_t tokens) const;
  int full_pages(std::int64_t tokens) const;
};

}  // namespace replayssm
