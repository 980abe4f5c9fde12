// The places of running sequences: record rings, conv rings and cursors, by row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cache/id_pool.h"
#include "cache/poison.h"
#include "cache/sequence_layout.h"
#include "core/memory_space.h"
#include "core/result.h"
#include "ops/views.h"
#include "replay/cursor.h"

namespace replayssm {

// Rows over all linear layers. A row has one holder. With replay off there are no record rings.
// One more row is never handed out: the null row, for the padding of batches, which is a cursor
// with null slots and has no rings. Not thread-safe.
class RowPool {
 public:
  // Throws OutOfMemory. The space outlives the pool.
  RowPool(const SequenceLayout& layout, int rows, MemorySpace& space, Poison poison = Poison::off);

  // A row whose cursor stands at (0, 0) with null slots, as IdPool::allocate(). Refused when all
  // are held.
  Result<RowIndex> allocate(const PreferredIds<RowIndex>& preferred = {});
  // Refused for a free row.
  Status release(RowIndex row);

  // Writes where the row stands, and with which slots; or its home slot alone.
  Status set_cursor(RowIndex row, const Cursor& cursor, SlotId base, SlotId home);
  Status set_home(RowIndex row, SlotId home);

  int rows() const { return ids_.size(); }
  int free() const { return ids_.free(); }
  int used() const { return ids_.used(); }
  RowIndex null_row() const { return RowIndex{rows()}; }
  std::int64_t ring_bytes() const { return static_cast<std::int64_t>(rings_.bytes()); }
  std::int64_t conv_ring_bytes() const { return static_cast<std::int64_t>(conv_rings_.bytes()); }
  // The null row's among them.
  std::int64_t cursor_bytes() const { return static_cast<std::int64_t>(cursors_.bytes()); }

  // One linear layer's part; the cursors of all layers. Valid as long as the pool.
  RingView rings(int layer);  // not with replay off
  ConvRingView conv_rings(int layer);
  CursorView cursors();

  // One row's rings, each a piece a linear layer: keys, key scales, corrections and gates (of no
  // bytes with replay off), then the conv ring. All that a copy of the row as it is takes.
  static constexpr std::size_t kRingArrays = 5;
  std::array<MemoryRegion, kRingArrays> row_memory(RowIndex row) const;

 private:
  SequenceLayout layout_;
  Poison poison_;
  IdPool<RowIndex> ids_;
  SpaceBuffer rings_;       // per layer [keys | scales | corrections | gates] of rows
  SpaceBuffer conv_rings_;  // [layers, rows, conv_rows, channels]
  SpaceBuffer cursors_;     // t, c, base, home: each [rows + 1], the null row last
};

}  // namespace replayssm
