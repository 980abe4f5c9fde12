// Where a sequence stands: a log of committed tokens and the checkpoint that part of it is folded
// into. This is all that decides what a step reads, folds and overwrites.
#pragma once

#include "replay/depth.h"
#include "replay/geometry.h"

namespace replayssm {

// committed: tokens decided and evaluated (their records, conv inputs and KV exist).
// checkpoint: depth of the state in the base slot, a multiple of the fold block.
// Invariant at every step boundary: checkpoint + pending == committed, 0 <= pending <= L + T_max
// - 1.
struct Cursor {
  Depth committed;
  Depth checkpoint;

  constexpr int pending() const { return committed - checkpoint; }
  constexpr bool operator==(const Cursor&) const = default;
};

// Fold on read: a step begins by folding one block if one is complete.
inline bool fold_due(const Cursor& cursor, const FoldGeometry& geometry) {
  return cursor.pending() >= geometry.fold_block();
}

// Blocks that a window folds into its home slot: 0 or 1.
inline int blocks_folded_by_window(const Cursor& cursor, const FoldGeometry& geometry) {
  return fold_due(cursor, geometry) ? 1 : 0;
}

// Blocks that a chunk of n > 0 tokens folds, so that it ends at rest:
// floor((t + n - 1) / L) - c / L.
inline int blocks_folded_by_chunk(const Cursor& cursor, int n, const FoldGeometry& geometry) {
  const Depth end = geometry.resting_checkpoint(cursor.committed + n);
  return (end - cursor.checkpoint) / geometry.fold_block();
}

// The cursor after a step that folded `blocks` and committed `tokens`.
inline Cursor advanced(const Cursor& cursor, int blocks, int tokens, const FoldGeometry& geometry) {
  return Cursor{cursor.committed + tokens, cursor.checkpoint + blocks * geometry.fold_block()};
}

// The largest depth, of at most `most` tokens, at which a second sequence can begin from what one
// that stands here holds: its end, one before (its conv inputs reach that far), its checkpoint; 0
// if there is none. Without a ring the state has no depth but its own.
inline Depth resume_depth(const Cursor& cursor, int most, bool replay) {
  if (cursor.committed.tokens <= most) return cursor.committed;
  if (!replay) return Depth{};
  if (cursor.committed.tokens - 1 <= most && cursor.pending() > 0) return cursor.committed - 1;
  if (cursor.checkpoint.tokens <= most) return cursor.checkpoint;
  return Depth{};
}

}  // namespace replayssm
