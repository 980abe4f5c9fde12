// Numbers in e4m3 with a multiplier for every 128 of them (model/float8.h). All pointers are device
// memory, 16-byte aligned.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/bfloat16.h"
#include "core/result.h"

namespace replayssm::cuda {

// x[t][c] is nearly codes[t][c] * scales[c / 128][t]: the multiplier is the largest magnitude of
// the 128 over 448, the largest e4m3 number, or 1 where all are 0; codes are rounded to nearest, to
// even on ties. A number that is not finite makes its 128 NaN. A token's codes depend on the token
// alone.
struct QuantiseArgs {
  const bf16* x = nullptr;  // [tokens, cols]
  int tokens = 0;
  int padded = 0;                 // tokens and the zeros behind them
  int cols = 0;                   // a multiple of 128
  std::uint8_t* codes = nullptr;  // [padded, cols]
  float* scales = nullptr;        // [cols / 128, padded]
};
Status launch_quantise(const QuantiseArgs& args, cudaStream_t stream);

// Finite codes below 2 in magnitude, the same for the same seed; the mean of their squares is about
// 0.36.
struct RandomCodesArgs {
  std::uint8_t* to = nullptr;  // [count]
  std::int64_t count = 0;      // a multiple of 8
  std::uint64_t seed = 0;
};
Status launch_random_codes(const RandomCodesArgs& args, cudaStream_t stream);

}  // namespace replayssm::cuda
