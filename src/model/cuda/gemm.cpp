#include "model/cuda/gemm.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "model/cuda/decoder_buffers.h"
#include "model/cuda/float8_kernels.h"
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

  // cuBLASLt names algorithms for float8 only when it has been told of multipliers; those of a call
  // are set when it is made. `scales`: any device memory.
  Status describe(const Shape& shape, const float* scales) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cudaDataType_t operand = shape.float8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const auto rows = static_cast<std::uint64_t>(shape.rows);
    const auto cols = static_cast<std::uint64_t>(shape.cols);
    const auto tokens = static_cast<std::uint64_t>(shape.tokens);
    REPLAYSSM_TRY(
        REPLAYSSM_BLAS_STATUS(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(cublasLtMatmulDescSetAttribute(
        product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed))));
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(
        cublasLtMatrixLayoutCreate(&weight, operand, cols, rows, shape.cols)));
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(
        cublasLtMatrixLayoutCreate(&input, operand, cols, tokens, shape.cols)));
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(
        cublasLtMatrixLayoutCreate(&output, data_type(shape.type), rows, tokens, shape.pitch)));
    if (!shape.float8) return {};
    REPLAYSSM_TRY(set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                      std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F}));
    REPLAYSSM_TRY(set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                      std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F}));
    return set_scales(scales, scales);
  }

  Status set_scales(const float* of_weight, const float* of_input) {
    REPLAYSSM_TRY(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_weight));
    return set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_input);
  }

  template <class T>
  Status set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return REPLAYSSM_BLAS_STATUS(
        cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)));
  }

  // The best algorithms that there are, in order; `unsplit`: only those that sum each result in one
  // piece.
  Result<std::vector<cublasLtMatmulAlgo_t>> candidates(cublasLtHandle_t handle,
                                                       std::size_t workspace_bytes, int most,
                                                       bool unsplit) const {
    cublasLtMatmulPreference_t preference = nullptr;
    REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(cublasLtMatmulPreferenceCreate(&preference)));
    Status status = REPLAYSSM_BLAS_STATUS(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof(workspace_bytes)));
    // Never parts of a sum in the output's type: they would be rounded more than once.
    const std::uint32_t schemes =
        unsplit ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (status.ok()) {
      status = REPLAYSSM_BLAS_STATUS(cublasLtMatmulPreferenceSetAttribute(
          preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)));
    }
    int found = 0;
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    if (status.ok()) {
      status = REPLAYSSM_BLAS_STATUS(cublasLtMatmulAlgoGetHeuristic(handle, product, weight, input,
                                                                    output, output, preference,
                                                                    most, results.data(), &found));
    }
    cublasLtMatmulPreferenceDestroy(preference);
    REPLAYSSM_TRY(status);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found; ++i) {
      const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
      if (result.state != CUBLAS_STATUS_SUCCESS) continue;
      if (unsplit && splits(result.algo) != 1) continue;
      algorithms.push_back(result.algo);
    }
    return algorithms;
  }

  // Parts of the inner dimension that are summed apart.
  static int splits(const cublasLtMatmulAlgo_t& algo) {
    std::int32_t parts = 0;
    std::size_t written = 0;
    const cublasStatus_t read = cublasLtMatmulAlgoConfigGetAttribute(
        &algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof(parts), &written);
    return read == CUBLAS_STATUS_SUCCESS ? std::max(parts, 1) : 0;
  }

  bool takes(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo,
             std::size_t workspace_bytes) const {
    cublasLtMatmulHeuristicResult_t result = {};
    return cublasLtMatmulAlgoCheck(handle, product, weight, input, output, output, &algo,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= workspace_bytes;
  }

  Status set_tokens(std::uint64_t tokens) {
    for (cublasLtMatrixLayout_t layout : {input, output}) {
      REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(cublasLtMatrixLayoutSetAttribute(
          layout, CUBLASLT_MATRIX_LAYOUT_COLS, &tokens, sizeof(tokens))));
    }
    return {};
  }
};

void Gemm::PlanDeleter::operator()(Plan* plan) const { delete plan; }

Result<Gemm> Gemm::make(std::optional<FixedAlgorithms> fixed, Float8Inputs float8) {
  Gemm gemm;
  gemm.fixed_ = fixed;
  if (float8.cols > 0) {
    gemm.float8_ = {padded_tokens(float8.tokens), float8.cols};
    const Float8InputBytes bytes = float8_input_bytes(float8.tokens, float8.cols);
    auto codes = DeviceBuffer::make(static_cast<std::size_t>(bytes.codes));
    if (!codes) return codes.error();
    gemm.float8_codes_ = std::move(*codes);
    auto scales = DeviceBuffer::make(static_cast<std::size_t>(bytes.scales));
    if (!scales) return scales.error();
    gemm.float8_scales_ = std::move(*scales);
  }
  cublasLtHandle_t handle = nullptr;
  REPLAYSSM_TRY(REPLAYSSM_BLAS_STATUS(cublasLtCreate(&handle)));
  gemm.handle_.reset(handle);
  auto workspace = DeviceBuffer::make(kProductWorkspaceBytes);
  if (!workspace) return workspace.error();
  gemm.workspace_ = std::move(*workspace);
  return gemm;
}

// The first candidate that takes every number of tokens.
Result<cublasLtMatmulAlgo_t> Gemm::fixed_algorithm(Shape shape) {
  shape.tokens = 0;
  const auto found = fixed_algorithms_.find(shape);
  if (found != fixed_algorithms_.end()) return found->second;
  constexpr int kCandidates = 32;
  // For long rows the heuristic counts on a split, and without one names an algorithm that is ten
  // times slower; what it names for shorter rows does not have that fault.
  constexpr int kMostCols = 4096;
  const int most = padded_tokens(fixed_->most_tokens);
  Shape described = shape;
  described.tokens = padded_tokens(fixed_->chosen_for);
  described.cols = std::min(shape.cols, kMostCols);
  Plan asked;
  REPLAYSSM_TRY(asked.describe(described, workspace_.as<float>()));
  const auto candidates = asked.candidates(handle_.get(), workspace_.bytes(), kCandidates, true);
  if (!candidates) return candidates.error();
  described.cols = shape.cols;
  Plan plan;
  REPLAYSSM_TRY(plan.describe(described, workspace_.as<float>()));
  for (const cublasLtMatmulAlgo_t& algorithm : *candidates) {
    bool takes_all = true;
    for (int tokens = kTokenMultiple; takes_all && tokens <= most; tokens += kTokenMultiple) {
      REPLAYSSM_TRY(plan.set_tokens(static_cast<std::uint64_t>(tokens)));
      takes_all = plan.takes(handle_.get(), algorithm, workspace_.bytes());
    }
    if (takes_all) return fixed_algorithms_.emplace(shape, algorithm).first->second;
  }
  return Error{fmt::format("cublasLt: none of {} algorithms takes 1 to {} tokens of this shape",
                           candidates->size(), most)};
}

Result<Gemm::Plan*> Gemm::plan_for(const Shape& shape) {
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return found->second.get();
  std::unique_ptr<Plan, PlanDeleter> plan(new Plan);
  REPLAYSSM_TRY(plan->describe(shape, workspace_.as<float>()));
  if (fixed_) {
    const auto algorithm = fixed_algorithm(shape);
    if (!algorithm) return algorithm.error();
    plan->algorithm = *algorithm;
  } else {
    const auto best = plan->candidates(handle_.get(), workspace_.bytes(), 1, false);
    if (!best) return best.error();
    if (best->empty()) return Error{"cublasLt: no algorithm for a product of this shape"};
    plan->algorithm = best->front();
  }
  return plans_.emplace(shape, std::move(plan)).first->second.get();
}

Status Gemm::run(const DeviceMatrix& weight, const bf16* x, int tokens, const ProductOutput& out,
                 cudaStream_t stream) {
  if (tokens == 0) return {};
  if (weight.float8.rows > 0) REPLAYSSM_TRY(multiply_float8(weight, x, tokens, out, stream));
  if (weight.bf16_rows() == 0) return {};
  if (fixed_) tokens = padded_tokens(tokens);
  const std::size_t number = out.type == DType::f32 ? sizeof(float) : sizeof(bf16);
  return multiply(
      {weight.bf16_rows(), weight.cols, tokens, out.type, out.add, weight.rows, false},
      {weight.data, x},
      static_cast<std::byte*>(out.data) + static_cast<std::size_t>(weight.float8.rows) * number,
      stream);
}

Status Gemm::multiply_float8(const DeviceMatrix& weight, const bf16* x, int tokens,
                             const ProductOutput& out, cudaStream_t stream) {
  const int padded = padded_tokens(tokens);
  if (padded > float8_.tokens || weight.cols > float8_.cols) {
    return refuse("float8 product: input", fmt::format("[{}, {}]", tokens, weight.cols),
                  fmt::format("at most [{}, {}]", float8_.tokens, float8_.cols));
  }
  REPLAYSSM_TRY(launch_quantise({x, tokens, padded, weight.cols, float8_codes_.as<std::uint8_t>(),
                                 float8_scales_.as<float>()},
                                stream));
  return multiply({weight.float8.rows, weight.cols, padded, out.type, out.add, weight.rows, true},
                  {weight.float8.codes, float8_codes_.as<void>(), weight.float8.scales,
                   float8_scales_.as<float>()},
                  out.data, stream);
}

Status Gemm::multiply(const Shape& shape, const Operands& operands, void* out,
                      cudaStream_t stream) {
  const auto planned = plan_for(shape);
  if (!planned) {
    return Error{fmt::format("{}{}product [{}, {}] x {} tokens: {}",
                             fixed_ ? "--deterministic: " : "", shape.float8 ? "float8 " : "",
                             shape.rows, shape.cols, shape.tokens, planned.error().message)};
  }
  Plan& plan = **planned;
  if (shape.float8) {
    REPLAYSSM_TRY(plan.set_scales(operands.weight_scales, operands.x_scales));
  }
  const float one = 1, kept = shape.add ? 1 : 0;
  return REPLAYSSM_BLAS_STATUS(cublasLtMatmul(handle_.get(), plan.product, &one, operands.weight,
                                              plan.weight, operands.x, plan.input, &kept, out,
                                              plan.output, out, plan.output, &plan.algorithm,
                                              workspace_.as<void>(), workspace_.bytes(), stream));
}

}  // namespace replayssm::cuda
