// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "core/bfloat16.h"
#include "core/dtype.h"
#include "core/result.h"
#include "model/float8.h"
#include "ops/cuda/device_memory.h"

namespace replayssm::cuda {

// Rows of a weight as e4m3 codes with a multiplier for each block of 128 x 128 (model/float8.h).
struct Float8Rows {
  const std::uint8_t* codes = nullptr;  // [rows, cols]; rows and cols are multiples of 128
  const float* scales = nullptr;        // [rows / 128, float8_scale_pitch(cols)]
  int rows = 0;
};

// cuBLASLt wants the multipliers of a row of blocks in a multiple of four numbers.
constexpr int float8_scale_pitch(int cols) {
  return static_cast<int>((float8_blocks(cols) + 3) / 4 * 4);
}

// A weight on the device, row-major [rows, cols] = [out, in]: float8 rows, if any, above bf16 rows.
struct DeviceMatrix {
  const bf16* data = nullptr;  // [bf16_rows(), cols]
  int rows = 0;                // all
  int cols = 0;
  Float8Rows float8;

  int bf16_rows() const { return rows - float8.rows; }
  // What a product reads.
  std::int64_t bytes() const {
    return std::int64_t{bf16_rows()} * cols * std::int64_t{sizeof(bf16)} +
           std::int64_t{float8.rows} * cols;
  }
};

// Where a product's result goes.
struct ProductOutput {
  void* data = nullptr;      // [tokens, weight rows]
  DType type = DType::bf16;  // bf16 or f32
  bool add = false;          // to what is there; cuBLAS rounds the product, too, before it is added
};

// With these, a token's result does not depend on how many others there are: each weight has one
// algorithm for all numbers of tokens, without a split of the inner dimension.
struct FixedAlgorithms {
  int most_tokens = 0;   // of a product
  int chosen_for = 128;  // tokens
};

// The largest input of a product with float8 rows.
struct Float8Inputs {
  int tokens = 0;
  int cols = 0;  // 0: there is none
};

// out = x W^T, fp32 sums. Products with float8 rows round x to e4m3 first, with a multiplier for
// every 128 of a token's numbers, their largest magnitude over 448. An algorithm is chosen once for
// each shape and then kept, so the same shape gives the same bits whenever it comes back. Used by
// one thread, on one stream.
class Gemm {
 public:
  static Result<Gemm> make(std::optional<FixedAlgorithms> fixed = {}, Float8Inputs float8 = {});

  // With fixed algorithms x and `out`, and with float8 rows `out`, have padded_tokens(tokens) rows:
  // those behind the tokens may hold anything, and get anything. Error: no algorithm that takes
  // every number of tokens; an input that make() was not told of.
  //   x [tokens, weight.cols]
  Status run(const DeviceMatrix& weight, const bf16* x, int tokens, const ProductOutput& out,
             cudaStream_t stream);

 private:
  struct Shape {
    int rows = 0;
    int cols = 0;
    int tokens = 0;
    DType type = DType::bf16;
    bool add = false;
    int pitch = 0;  // numbers from one token's result to the next one's
    bool float8 = false;
    auto operator<=>(const Shape&) const = default;
  };
  // Operands as cuBLAS takes them; with float8, their multipliers.
  struct Operands {
    const void* weight = nullptr;
    const void* x = nullptr;
    const float* weight_scales = nullptr;
    const float* x_scales = nullptr;
  };
  struct Plan;
  struct PlanDeleter {
    void operator()(Plan* plan) const;
  };
  struct HandleDeleter {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };

  Status multiply(const Shape& shape, const Operands& operands, void* out, cudaStream_t stream);
  Status multiply_float8(const DeviceMatrix& weight, const bf16* x, int tokens,
                         const ProductOutput& out, cudaStream_t stream);
  Result<Plan*> plan_for(const Shape& shape);
  Result<cublasLtMatmulAlgo_t> fixed_algorithm(Shape shape);

  std::optional<FixedAlgorithms> fixed_;
  std::unique_ptr<cublasLtContext, HandleDeleter> handle_;
  std::map<Shape, std::unique_ptr<Plan, PlanDeleter>> plans_;
  std::map<Shape, cublasLtMatmulAlgo_t> fixed_algorithms_;  // of shapes with 0 tokens
  DeviceBuffer workspace_;
  Float8Inputs float8_;
  DeviceBuffer float8_codes_;   // [tokens, cols]
  DeviceBuffer float8_scales_;  // [float8_blocks(cols), tokens]
};

}  // namespace replayssm::cuda
