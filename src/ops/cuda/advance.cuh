// Moves one entry's cursor; see AdvanceArgs.
#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/step_args.h"

namespace replayssm::cuda {

// Blocks of `fold_block` positions that a step folds: a chunk of `chunk` tokens all that end before
// its end; a window (chunk 0) one, where it is complete.
__device__ inline int blocks_folded(int committed, int checkpoint, int chunk, int fold_block) {
  if (chunk > 0) return (committed + chunk - 1) / fold_block - checkpoint / fold_block;
  return committed - checkpoint >= fold_block ? 1 : 0;
}

__device__ inline void advance_entry(const AdvanceArgs& args, int entry) {
  const int row = args.row[entry];
  if (row < 0 || args.base[row] < 0) return;
  const int accepted = args.accepted[entry];
  const int committed = args.committed[row], checkpoint = args.checkpoint[row];
  if (args.packed) {
    args.committed[row] = committed + accepted;
    args.checkpoint[row] = committed + accepted;
    if (accepted > 0) args.base[row] = args.home[row];
    return;
  }
  const int chunk = args.chunk == nullptr ? 0 : args.chunk[entry];
  const int blocks = blocks_folded(committed, checkpoint, chunk, args.fold_block);
  if (blocks > 0) {
    args.checkpoint[row] = checkpoint + blocks * args.fold_block;
    args.base[row] = args.home[row];
  }
  args.committed[row] = committed + accepted;
}

}  // namespace replayssm::cuda
