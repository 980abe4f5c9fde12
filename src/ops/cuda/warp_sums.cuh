// Sums and products over the lanes of a warp. The order of operations is fixed: it depends on
// neither how many values are reduced together nor which lane ends up with a sum.
#pragma once

#include "ops/cuda/ptx.cuh"

namespace replayssm::cuda {

// Adds each of kValues values over the 32 lanes, always in the tree of lane distances 16, 8, 4, 2,
// 1. Afterwards values[i] of a lane is the sum of value i + (lane % min(kValues, 32)) *
// max(kValues / 32, 1): for kValues = 64 each lane holds two, at values[0] and values[1].
// kValues is a power of two. 62 shuffles for 64 values, 31 for 32 or fewer.
template <int kValues>
__device__ __forceinline__ void sum_over_lanes(float (&values)[kValues]) {
  constexpr int kKept = kValues > 32 ? kValues / 32 : 1;
  int count = kValues;
#pragma unroll
  for (int distance = 16; distance >= 1; distance >>= 1) {
    // Halving the set of values at this distance leaves as many as the smaller distances can halve.
    if (count / kKept > distance) {
      count /= 2;
      const bool upper = (ptx::lane() & distance) != 0;
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) {
        if (i < count) {
          const float keep = upper ? values[i + count] : values[i];
          const float send = upper ? values[i] : values[i + count];
          values[i] = keep + ptx::shuffle_xor(send, distance);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        if (i < count) values[i] = values[i] + ptx::shuffle_xor(values[i], distance);
      }
    }
  }
}

// The product of x over this lane and all higher ones of its kLanes lanes. Where lanes 16 .. 31
// have ones, sixteen lanes give the bits of 32.
template <int kLanes = 32>
__device__ __forceinline__ float suffix_product(float x) {
  const int lane = ptx::lane() % kLanes;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance <<= 1) {
    const float above = ptx::shuffle_down(x, distance);
    x *= lane + distance < kLanes ? above : 1.0f;
  }
  return x;
}

}  // namespace replayssm::cuda
