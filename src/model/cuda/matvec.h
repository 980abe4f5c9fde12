// Products for a few tokens, where reading the weight is all that counts: one launch makes the
// input from what the kernel before left, and multiplies. A token's bits do not depend on how many
// tokens there are. All pointers are device memory, 16-byte aligned; strides are elements.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/bfloat16.h"
#include "core/result.h"
#include "model/cuda/gemm.h"

namespace replayssm::cuda {

inline constexpr int kMatvecTokens = 4;  // the most

// How x, the input of a product, comes from `from`; see decoder_kernels.h for each.
enum class MatvecInput {
  rms_norm,         // from: the residual stream, [.., cols]
  silu_product,     // from: gates and ups, [tokens, 2 cols]
  gated_norm,       // from: value heads, [tokens, cols]; gate: theirs
  sigmoid_product,  // from: query heads, [tokens, cols]; gate: that of head 0, heads 2 head_dim
                    // apart
  plain,            // from: x itself
};

struct MatvecArgs {
  MatvecInput input = MatvecInput::rms_norm;
  const bf16* from = nullptr;
  const int* rows = nullptr;     // rms_norm: token i is row rows[i] of `from`; null: row i
  const float* scale = nullptr;  // of the norms
  float eps = 0;
  const bf16* gate = nullptr;
  std::int64_t gate_stride = 0;  // from one token to the next
  int head_dim = 0;
  DeviceMatrix weight;
  int tokens = 0;       // 1 .. kMatvecTokens
  void* out = nullptr;  // [tokens, weight.rows]
  DType out_type = DType::bf16;
  bool add = false;  // to what is there, rounded once; bf16 only
};

// Whether launch_matvec() takes this product.
bool matvec_fits(const DeviceMatrix& weight, int tokens);

Status launch_matvec(const MatvecArgs& args, cudaStream_t stream);

}  // namespace replayssm::cuda
