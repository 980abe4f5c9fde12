// How often a step touches a whole state, the quantity that replay saves. One unit is the state of
// one sequence in one layer.
#pragma once

#include "replay/cursor.h"

namespace replayssm {

struct StateTraffic {
  int reads = 0;
  int writes = 0;
  int folds = 0;  // blocks folded

  constexpr StateTraffic& operator+=(const StateTraffic& other) {
    reads += other.reads;
    writes += other.writes;
    folds += other.folds;
    return *this;
  }
  constexpr bool operator==(const StateTraffic&) const = default;
};

// A window reads its checkpoint unless that is the zero state, and writes one if it folds.
inline StateTraffic window_traffic(const Cursor& cursor, const FoldGeometry& geometry) {
  const int blocks = blocks_folded_by_window(cursor, geometry);
  return {cursor.checkpoint.tokens > 0 ? 1 : 0, blocks, blocks};
}

// A chunk reads its checkpoint once and writes the new one once, however many blocks it folds.
inline StateTraffic chunk_traffic(const Cursor& cursor, int n, const FoldGeometry& geometry) {
  const int blocks = blocks_folded_by_chunk(cursor, n, geometry);
  return {cursor.checkpoint.tokens > 0 ? 1 : 0, blocks > 0 ? 1 : 0, blocks};
}

// The packed step reads and writes the state once for the tokens it is given together.
inline StateTraffic packed_traffic(Depth committed) { return {committed.tokens > 0 ? 1 : 0, 1, 0}; }

}  // namespace replayssm
