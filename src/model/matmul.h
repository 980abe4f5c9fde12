// Products of activations with weight matrices, on the pool's threads. Which kernel runs when, and
// why, is docs/adr/0002-matrix-products-on-the-cpu.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/aligned_buffer.h"
#include "core/bfloat16.h"
#include "core/dtype.h"
#include "core/thread_pool.h"
#include "model/weights.h"

namespace replayssm {

// One of the products that share an input: out[m][n] = sum_k x[m][k] * weight[n][k], n < columns.
struct Product {
  const WeightMatrix* weight = nullptr;
  float* out = nullptr;        // rows out_stride apart; must not overlap the input
  std::size_t out_stride = 0;  // elements, >= columns
  int columns = 0;             // the first so many rows of the weight: 1 .. weight->rows
};

enum class MatmulKernel {
  row_dot,      // row_dot.h: weights read once; bits independent of the other rows
  onednn_f32,   // weights widened tile by tile, then sgemm; bits may depend on the number of rows
  onednn_bf16,  // bf16 inputs and weights as stored; bits may depend on the number of rows
};

// What decides on a kernel.
struct MatmulPolicy {
  bool deterministic = false;      // row_dot only
  DType activations = DType::f32;  // bf16: inputs are bf16 values, outputs are rounded to bf16
  bool bf16_instructions = false;  // onednn_has_bf16_instructions()
};

// A pure function of its arguments, so that it can be tested for machines we do not have.
MatmulKernel choose_kernel(const MatmulPolicy& policy, DType weight, int rows);

// Outputs that one task computes: a multiple of the kernel's tile, at least about 64 KiB of
// weights. A function of the shape only, never of the thread count.
int columns_per_task(MatmulKernel kernel, const WeightMatrix& weight);

// Runs products and owns the scratch they need, allocated once. Used by one thread at a time, the
// one that may call pool.parallel_for. Results do not depend on the number of threads.
class Matmul {
 public:
  // `pool` outlives it. No input has more than max_rows rows or max_cols columns.
  Matmul(ThreadPool& pool, const MatmulPolicy& policy, int max_rows, int max_cols);

  // x [rows, cols], rows x_stride apart, cols being that of every product's weight. The outputs are
  // rounded to policy.activations, unless `exact` asks for the fp32 sums.
  // Precondition: 1 <= rows <= max_rows, cols <= max_cols.
  void run(const float* x, std::size_t x_stride, int rows, std::span<const Product> products,
           bool exact = false);

  const MatmulPolicy& policy() const { return policy_; }

  static std::int64_t scratch_bytes(int threads, const MatmulPolicy& policy, int max_rows,
                                    int max_cols);

 private:
  void run_block(MatmulKernel kernel, const float* x, std::size_t x_stride, int rows,
                 const Product& product, int first, int last, int thread, bool exact);

  ThreadPool& pool_;
  MatmulPolicy policy_;
  AlignedBuffer<float> widened_;  // [threads, kWidenedElements]; empty when deterministic
  AlignedBuffer<bf16> inputs_;    // [max_rows, max_cols]; empty without onednn_bf16
};

}  // namespace replayssm
