// The sizes that the fold rule works with, checked once and then trusted.
#pragma once

#include "core/result.h"
#include "replay/depth.h"

namespace replayssm {

// How an operation treats the record ring of one key head while it appends to it.
enum class RingAccess {
  // Rows of a folded block may still be read while the window's rows are written.
  shared,
  // One owner finishes every read of the ring (and its fold) before the first append.
  staged,
};

// Fold block L, largest window T_max and the ring sizes that follow. A value of this type is
// always consistent; make() is the only way to get one other than the default (16, 1).
class FoldGeometry {
 public:
  static constexpr int kLargestWindow = 16;
  static constexpr int kConvWidth = 4;

  FoldGeometry() = default;

  // fold_block: 8, 16 or 32 (1 for tests). window_max: 1 .. min(fold_block, 16).
  // Errors name the flag, the value and what is accepted.
  static Result<FoldGeometry> make(int fold_block, int window_max,
                                   RingAccess access = RingAccess::shared);

  int fold_block() const { return fold_block_; }
  int window_max() const { return window_max_; }

  // R: rows of a record ring, a power of two. With shared access R >= L + 2 T_max - 1, since a step
  // may append T_max rows while the L + T_max - 1 pending ones are still read; staged,
  // R >= L + T_max - 1.
  int ring_rows() const { return ring_rows_; }

  // Rows of the ring of conv inputs. A folding step keeps the inputs from c + L - 3 on, which can
  // lie T_max + 2 before t, and appends T_max: 2 T_max + 2, and two more for the inputs t - 4 that
  // a cache entry keeps.
  int conv_rows() const { return 2 * window_max_ + kConvWidth; }

  // The most tokens that can be pending between steps: L + T_max - 1.
  int pending_max() const { return fold_block_ + window_max_ - 1; }

  // The row of a ring that holds position i.
  int ring_row(Depth position) const { return position.tokens & (ring_rows_ - 1); }
  int conv_row(Depth position) const { return position.tokens % conv_rows(); }

  // The checkpoint that the result at a position is computed from: L * floor(i / L).
  Depth checkpoint_of(Depth position) const {
    return Depth{position.tokens / fold_block_ * fold_block_};
  }

  // The checkpoint of a sequence at rest with t committed tokens: L * floor((t - 1) / L); 0 at 0.
  Depth resting_checkpoint(Depth committed) const {
    return committed.tokens == 0 ? Depth{0} : checkpoint_of(committed - 1);
  }

  bool operator==(const FoldGeometry&) const = default;

 private:
  FoldGeometry(int fold_block, int window_max, int ring_rows)
      : fold_block_(fold_block), window_max_(window_max), ring_rows_(ring_rows) {}

  int fold_block_ = 16;
  int window_max_ = 1;
  int ring_rows_ = 32;
};

}  // namespace replayssm
