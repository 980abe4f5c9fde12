// The places of running sequences: record rings, conv rings and cursors, by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/id_pool.h"
#include "cache/poison.h"
#include "cache/sequence_layout.h"
#include "core/aligned_buffer.h"
#include "core/result.h"
#include "ops/views.h"

namespace replayssm {

// Rows over all linear layers. A row has one holder. With replay off there are no record rings.
// Not thread-safe.
class RowPool {
 public:
  RowPool(const SequenceLayout& layout, int rows, Poison poison = Poison::off);

  // A row whose cursor stands at (0, 0) with null slots. Refused when all are held.
  Result<RowIndex> allocate();
  // Refused for a free row.
  Status release(RowIndex row);

  int rows() const { return ids_.size(); }
  int free() const { return ids_.free(); }
  int used() const { return ids_.used(); }
  std::int64_t ring_bytes() const { return static_cast<std::int64_t>(rings_.bytes()); }
  std::int64_t conv_ring_bytes() const { return static_cast<std::int64_t>(conv_rings_.bytes()); }
  std::int64_t cursor_bytes() const;

  // One linear layer's part; the cursors of all layers. Valid as long as the pool.
  RingView rings(int layer);  // not with replay off
  ConvRingView conv_rings(int layer);
  CursorView cursors();

  // One row's bytes of each ring array, in a fixed order over all layers: keys, key scales,
  // corrections and gates of every layer, then the conv rings. For copying a row as it is.
  std::vector<std::span<std::byte>> row_memory(RowIndex row);

 private:
  template <class Visit>
  void visit_row(RowIndex row, Visit&& visit);

  SequenceLayout layout_;
  Poison poison_;
  IdPool<RowIndex> ids_;
  AlignedBuffer<std::byte> rings_;       // per layer [keys | scales | corrections | gates] of rows
  AlignedBuffer<std::byte> conv_rings_;  // [layers, rows, conv_rows, channels]
  std::vector<Depth> committed_;
  std::vector<Depth> checkpoint_;
  std::vector<SlotId> base_;
  std::vector<SlotId> home_;
};

}  // namespace replayssm
