#include "model/matmul.h"

#include <algorithm>
#include <functional>

#include "model/norm.h"
#include "model/onednn_product.h"
#include "model/row_dot.h"

namespace replayssm {
namespace {

// Below so many rows row_dot is at least as fast as oneDNN (measured; see the ADR).
constexpr int kRowsForOnednnF32 = 128;
constexpr int kRowsForOnednnBf16 = 5;

// Products smaller than this many multiplications are not worth waking other threads for.
constexpr std::int64_t kWorthSharing = 1 << 16;

bool may_use_onednn_bf16(const MatmulPolicy& policy) {
  return !policy.deterministic && policy.bf16_instructions && policy.activations == DType::bf16;
}

}  // namespace

MatmulKernel choose_kernel(const MatmulPolicy& policy, DType weight, int rows) {
  if (policy.deterministic) return MatmulKernel::row_dot;
  if (may_use_onednn_bf16(policy) && weight == DType::bf16) {
    return rows < kRowsForOnednnBf16 ? MatmulKernel::row_dot : MatmulKernel::onednn_bf16;
  }
  return rows < kRowsForOnednnF32 ? MatmulKernel::row_dot : MatmulKernel::onednn_f32;
}

int columns_per_task(MatmulKernel kernel, const WeightMatrix& weight) {
  if (kernel != MatmulKernel::row_dot) return kWidenedRows;
  constexpr std::int64_t kTaskBytes = 64 << 10;
  constexpr std::int64_t kTiles = 48;  // a block of row_dot, and a multiple of its tiles
  const std::int64_t row_bytes =
      std::int64_t{weight.cols} * static_cast<std::int64_t>(size_of(weight.type));
  const std::int64_t columns = (kTaskBytes + row_bytes - 1) / row_bytes;
  return static_cast<int>((columns + kTiles - 1) / kTiles * kTiles);
}

Matmul::Matmul(ThreadPool& pool, const MatmulPolicy& policy, int max_rows, int max_cols)
    : pool_(pool), policy_(policy) {
  if (!policy.deterministic) {
    widened_ = AlignedBuffer<float>(static_cast<std::size_t>(pool.threads()) * kWidenedElements);
  }
  if (may_use_onednn_bf16(policy)) {
    inputs_ = AlignedBuffer<bf16>(static_cast<std::size_t>(max_rows) *
                                  static_cast<std::size_t>(max_cols));
  }
}

std::int64_t Matmul::scratch_bytes(int threads, const MatmulPolicy& policy, int max_rows,
                                   int max_cols) {
  std::int64_t bytes = 0;
  if (!policy.deterministic) {
    bytes += std::int64_t{threads} * static_cast<std::int64_t>(kWidenedElements * sizeof(float));
  }
  if (may_use_onednn_bf16(policy)) {
    bytes += std::int64_t{max_rows} * max_cols * static_cast<std::int64_t>(sizeof(bf16));
  }
  return bytes;
}

void Matmul::run_block(MatmulKernel kernel, const float* x, std::size_t x_stride, int rows,
                       const Product& product, int first, int last, int thread, bool exact) {
  const WeightMatrix& weight = *product.weight;
  bool done = false;
  if (kernel == MatmulKernel::onednn_bf16) {
    done = onednn_bf16_product(inputs_.data(), static_cast<std::size_t>(weight.cols), rows, weight,
                               first, last, product.out, product.out_stride);
  } else if (kernel == MatmulKernel::onednn_f32) {
    float* scratch = widened_.data() + static_cast<std::size_t>(thread) * kWidenedElements;
    done = onednn_f32_product(x, x_stride, rows, weight, first, last, product.out,
                              product.out_stride, scratch);
  }
  if (!done) row_dot(x, x_stride, rows, weight, first, last, product.out, product.out_stride);
  if (exact || policy_.activations != DType::bf16) return;
  for (int m = 0; m < rows; ++m) {
    round_to_bf16(product.out + static_cast<std::size_t>(m) * product.out_stride + first,
                  static_cast<std::size_t>(last - first));
  }
}

void Matmul::run(const float* x, std::size_t x_stride, int rows, std::span<const Product> products,
                 bool exact) {
  std::size_t tasks = 0;
  std::int64_t work = 0;
  bool rounded_inputs = false;
  const auto kernel_of = [&](const Product& p) {
    return choose_kernel(policy_, p.weight->type, rows);
  };
  const auto tasks_of = [&](const Product& p) {
    const int step = columns_per_task(kernel_of(p), *p.weight);
    return static_cast<std::size_t>((p.columns + step - 1) / step);
  };
  for (const Product& p : products) {
    tasks += tasks_of(p);
    work += std::int64_t{p.columns} * p.weight->cols * rows;
    rounded_inputs = rounded_inputs || kernel_of(p) == MatmulKernel::onednn_bf16;
  }
  if (rounded_inputs) {
    const auto cols = static_cast<std::size_t>(products.front().weight->cols);
    for (std::size_t m = 0; m < static_cast<std::size_t>(rows); ++m) {
      for (std::size_t k = 0; k < cols; ++k) inputs_[m * cols + k] = to_bf16(x[m * x_stride + k]);
    }
  }
  const auto task = [&](std::size_t index, int thread) {
    for (const Product& p : products) {
      const std::size_t count = tasks_of(p);
      if (index >= count) {
        index -= count;
        continue;
      }
      const MatmulKernel kernel = kernel_of(p);
      const int step = columns_per_task(kernel, *p.weight);
      const int first = static_cast<int>(index) * step;
      run_block(kernel, x, x_stride, rows, p, first, std::min(p.columns, first + step), thread,
                exact);
      return;
    }
  };
  if (work < kWorthSharing) {
    for (std::size_t i = 0; i < tasks; ++i) task(i, 0);
  } else {
    pool_.parallel_for(tasks, std::cref(task));  // by reference: no allocation
  }
}

}  // namespace replayssm
