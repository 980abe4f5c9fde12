#include "model/cuda/gemm.h"

#include <utility>

#include "model/cuda/decoder_buffers.h"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

Status blas_status(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return Error{fmt::format("{} failed: {}", call, cublasLtGetStatusString(status))};
}

cudaDataType_t data_type(DType type) { return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

}  // namespace

#define REPLAYSSM_BLAS_STATUS(call) blas_status((call), #call)

// Owns the descriptors of one shape's product, and the algorithm that was chosen for it. As
// cuBLAS sees it (column-major): out [rows, tokens] = W^T, stored [cols, rows], times x [cols,
// tokens].
struct Gemm::Plan {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weight = nullptr;
  cublasLtMatrixLayout_t input = nullptr;
  cublasLtMatrixLayout_t output = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
    for (cublasLtMatrixLayout_t layout : {weight, input, output}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }

  Status describe(const Shape& shape) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto rows = static_cast<std::uint64_t>(shape.rows);
    const auto cols = static_cast<std::uint64_t>(shape.cols);
    const auto tokens = static_cast<std::uint64_t>(shape.tokens);
    REPLAYSSM_TRY(
        REPLAYSSM_BLAS_STATUS(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(cublasLtMatmulDescSetAttribute(
        product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed))));
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(
        cublasLtMatrixLayoutCreate(&weight, CUDA_R_16BF, cols, rows, shape.cols)));
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(
        cublasLtMatrixLayoutCreate(&input, CUDA_R_16BF, cols, tokens, shape.cols)));
    return REPLAYSSM_BLAS_STATUS(
        cublasLtMatrixLayoutCreate(&output, data_type(shape.type), rows, tokens, shape.rows));
  }

  Status choose(cublasLtHandle_t handle, std::size_t workspace_bytes) {
    cublasLtMatmulPreference_t preference = nullptr;
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(cublasLtMatmulPreferenceCreate(&preference)));
    Status status = REPLAYSSM_BLAS_STATUS(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof(workspace_bytes)));
    int found = 0;
    cublasLtMatmulHeuristicResult_t best = {};
    if (status.ok()) {
      status = REPLAYSSM_BLAS_STATUS(cublasLtMatmulAlgoGetHeuristic(
          handle, product, weight, input, output, output, preference, 1, &best, &found));
    }
    cublasLtMatmulPreferenceDestroy(preference);
    REPLAYSSM_TRY(status);
    if (found == 0) return Error{"cublasLt: no algorithm for a product of this shape"};
    algorithm = best.algo;
    return {};
  }
};

void Gemm::PlanDeleter::operator()(Plan* plan) const { delete plan; }

Result<Gemm> Gemm::make() {
  Gemm gemm;
  cublasLtHandle_t handle = nullptr;
  REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(cublasLtCreate(&handle)));
  gemm.handle_.reset(handle);
  auto workspace = DeviceBuffer::make(kProductWorkspaceBytes);
  if (!workspace) return workspace.error();
  gemm.workspace_ = std::move(*workspace);
  return gemm;
}

Result<Gemm::Plan*> Gemm::plan_for(const Shape& shape) {
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return found->second.get();
  std::unique_ptr<Plan, PlanDeleter> plan(new Plan);
  REPLAYSSM_TRY(plan->describe(shape));
  REPLAYSSM_TRY(plan->choose(handle_.get(), workspace_.bytes()));
  return plans_.emplace(shape, std::move(plan)).first->second.get();
}

Status Gemm::run(const DeviceMatrix& weight, const bf16* x, int tokens, const ProductOutput& out,
                 cudaStream_t stream) {
  if (tokens == 0) return {};
  const auto plan = plan_for({weight.rows, weight.cols, tokens, out.type, out.add});
  if (!plan) {
    return Error{fmt::format("product [{}, {}] x {} tokens: {}", weight.rows, weight.cols, tokens,
                             plan.error().message)};
  }
  const float one = 1, kept = out.add ? 1 : 0;
  return REPLAYSSM_BLAS_STATUS(
      cublasLtMatmul(handle_.get(), (*plan)->product, &one, weight.data, (*plan)->weight, x,
                     (*plan)->input, &kept, out.data, (*plan)->output, out.data, (*plan)->output,
                     &(*plan)->algorithm, workspace_.as<void>(), workspace_.bytes(), stream));
}

}  // namespace replayssm::cuda
