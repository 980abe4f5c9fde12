// Moves one entry's cursor; see AdvanceArgs.
#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/step_args.h"

namespace replayssm::cuda {

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
  const int blocks = chunk > 0
                         ? (committed + chunk - 1) / args.fold_block - checkpoint / args.fold_block
                         : (committed - checkpoint >= args.fold_block ? 1 : 0);
  if (blocks > 0) {
    args.checkpoint[row] = checkpoint + blocks * args.fold_block;
    args.base[row] = args.home[row];
  }
  args.committed[row] = committed + accepted;
}

}  // namespace replayssm::cuda
