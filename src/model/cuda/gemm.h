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
#include "ops/cuda/device_memory.h"

namespace replayssm::cuda {

// A weight on the device, row-major [rows, cols] = [out, in].
struct DeviceMatrix {
  const bf16* data = nullptr;
  int rows = 0;
  int cols = 0;

  std::int64_t bytes() const { return std::int64_t{rows} * cols * std::int64_t{sizeof(bf16)}; }
};

// Where a product's result goes.
struct ProductOutput {
  void* data = nullptr;      // [tokens, weight rows]
  DType type = DType::bf16;  // bf16 or f32
  bool add = false;          // to what is there, rounded once
};

// With these, a token's result does not depend on how many others there are: each weight has one
// algorithm for all numbers of tokens, without a split of the inner dimension.
struct FixedAlgorithms {
  int most_tokens = 0;   // of a product
  int chosen_for = 128;  // tokens
};

// out = x W^T, fp32 sums. An algorithm is chosen once for each shape and then kept, so the same
// shape gives the same bits whenever it comes back. Used by one thread, on one stream.
class Gemm {
 public:
  static Result<Gemm> make(std::optional<FixedAlgorithms> fixed = {});

  // With fixed algorithms x and `out` have padded_tokens(tokens) rows: those behind the tokens may
  // hold anything, and get anything. Error: no algorithm that takes every number of tokens.
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
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan;
  struct PlanDeleter {
    void operator()(Plan* plan) const;
  };
  struct HandleDeleter {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };

  Result<Plan*> plan_for(const Shape& shape);
  Result<cublasLtMatmulAlgo_t> fixed_algorithm(Shape shape);

  std::optional<FixedAlgorithms> fixed_;
  std::unique_ptr<cublasLtContext, HandleDeleter> handle_;
  std::map<Shape, std::unique_ptr<Plan, PlanDeleter>> plans_;
  std::map<Shape, cublasLtMatmulAlgo_t> fixed_algorithms_;  // of shapes with 0 tokens
  DeviceBuffer workspace_;
};

}  // namespace replayssm::cuda
