// Finding the largest logit of a row: candidates, and how they meet.
#pragma once

#include <cuda_runtime.h>

#include "model/cuda/decoder_buffers.h"
#include "model/cuda/decoder_math.cuh"

namespace replayssm::cuda {

// The larger logit, of equal ones the earlier token. Token -1: none yet; -2: a logit was not
// finite, which nothing outdoes.
inline constexpr int kNoToken = -1, kBroken = -2;
__device__ __forceinline__ BestToken better(const BestToken& a, const BestToken& b) {
  if (a.token == kBroken || b.token == kNoToken) return a;
  if (b.token == kBroken || a.token == kNoToken) return b;
  const bool first = a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  return first ? a : b;
}
__device__ __forceinline__ BestToken best_of_warp(BestToken best) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    best = better(best, {__shfl_xor_sync(0xffffffffu, best.logit, distance),
                         __shfl_xor_sync(0xffffffffu, best.token, distance)});
  }
  return best;
}

inline constexpr int kBestThreads = 256;
inline constexpr int kBestWarps = kBestThreads / kWarp;

// Of a block of kBestThreads; the result is thread 0's.
__device__ __forceinline__ BestToken best_of_block(BestToken best, BestToken (&warps)[kBestWarps]) {
  const int thread = static_cast<int>(threadIdx.x);
  best = best_of_warp(best);
  if (thread % kWarp == 0) warps[thread / kWarp] = best;
  __syncthreads();
  if (thread >= kWarp) return best;
  return best_of_warp(thread < kBestWarps ? warps[thread] : BestToken{0, kNoToken});
}

}  // namespace replayssm::cuda
