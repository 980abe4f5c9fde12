// What a draft head does on the GPU before its layer. All pointers are device memory, 16-byte
// aligned; the width is a multiple of 8.
#pragma once

#include <cuda_runtime_api.h>

#include "core/bfloat16.h"
#include "core/result.h"

namespace replayssm::cuda {

// joined[i] = [norm(table[tokens[i]]) ; norm(given[i])], each norm as in launch_rms_norm().
struct JoinArgs {
  const int* tokens = nullptr;             // [count]
  const bf16* table = nullptr;             // [vocabulary, width]
  const float* embedding_scale = nullptr;  // [width]
  const bf16* given = nullptr;             // [count, width]
  const float* given_scale = nullptr;      // [width]
  float eps = 0;
  bf16* joined = nullptr;  // [count, 2 width]
  int count = 0;
  int width = 0;
};
Status launch_join(const JoinArgs& args, cudaStream_t stream);

// Zeros for the keys and values of position 0 of every row, which are not attended to but meet a
// weight of zero.
struct ClearFirstArgs {
  const int* page_start = nullptr;  // [rows], indices of pages
  const int* pages = nullptr;
  bf16* keys = nullptr;  // [pages, page_tokens, position]
  bf16* values = nullptr;
  int rows = 0;
  int page_tokens = 0;
  int position = 0;  // elements of one position, a multiple of 8
};
Status launch_clear_first(const ClearFirstArgs& args, cudaStream_t stream);

}  // namespace replayssm::cuda
