// Products for one token, where reading the weight is all that counts: one launch makes the input
// from what the kernel before left, and multiplies. All pointers are device memory, 16-byte
// aligned.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/bfloat16.h"
#include "core/result.h"
#include "model/cuda/gemm.h"

namespace replayssm::cuda {

// How x, the input of a product, comes from `from`; see decoder_kernels.h for each.
enum class MatvecInput {
  rms_norm,         // from: the residual stream, [.., cols]
  silu_product,     // from: gates and ups, [2 cols]
  gated_norm,       // from: value heads, [cols]; gate: theirs
  sigmoid_product,  // from: query heads, [cols]; gate: that of head 0, heads 2 head_dim apart
  plain,            // from: x itself
};

struct MatvecArgs {
  MatvecInput input = MatvecInput::rms_norm;
  const bf16* from = nullptr;
  const int* rows = nullptr;     // rms_norm: the token is row rows[0] of `from`; null: row 0
  const float* scale = nullptr;  // of the norms
  float eps = 0;
  const bf16* gate = nullptr;
  int head_dim = 0;
  DeviceMatrix weight;
  void* out = nullptr;  // [weight.rows]
  DType out_type = DType::bf16;
  bool add = false;  // to what is there, rounded once; bf16 only
};

// Whether launch_matvec() takes this product, on a device whose blocks may have so much shared
// memory.
bool matvec_fits(const DeviceMatrix& weight, int tokens, std::size_t shared_bytes_per_block);

// Precondition: matvec_fits(). Float8 rows are multiplied as they are, with the input in bf16; they
// are a launch of their own.
Status launch_matvec(const MatvecArgs& args, cudaStream_t stream);

}  // namespace replayssm::cuda
