// Times a decoder's matrix products on a GPU: launch_matvec(), which makes its input itself, beside
// cuBLASLt with its first choice and with the best of its first sixteen. Results of the two are
// compared first. Weights are rotated beyond the L2 cache; a graph of launches, the median of nine
// replays.
//   cuda_product_bench [--filter TEXT]
// TEXT: such as "4b" or "4b gate_up". One JSON object a line.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/bfloat16.h"
#include "cuda_layer_set.h"
#include "model/cuda/decoder_kernels.h"
#include "model/cuda/gemm.h"
#include "model/cuda/matvec.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::bench {
namespace {

using cuda::DeviceBuffer;
using cuda::DeviceMatrix;
using cuda::MatvecInput;

constexpr std::size_t kBeyondCache = std::size_t{240} << 20;
constexpr int kChoices = 16;

struct Product {
  const char* name;
  int rows;
  int cols;
  MatvecInput input;
  bool add;
};

const Product kProducts[] = {
    {"4b linear_in", 12352, 2560, MatvecInput::rms_norm, false},
    {"4b linear_out", 2560, 4096, MatvecInput::gated_norm, true},
    {"4b gate_up", 18432, 2560, MatvecInput::rms_norm, false},
    {"4b down", 2560, 9216, MatvecInput::silu_product, true},
    {"27b linear_in", 16480, 5120, MatvecInput::rms_norm, false},
    {"27b linear_out", 5120, 6144, MatvecInput::gated_norm, true},
    {"27b gate_up", 34816, 5120, MatvecInput::rms_norm, false},
    {"27b down", 5120, 17408, MatvecInput::silu_product, true},
};

class Bench {
 public:
  Status run(const Product& product) {
    auto stream = cuda::Stream::make();
    if (!stream) return stream.error();
    stream_ = std::move(*stream);
    product_ = product;
    const auto limits = cuda::device_limits();
    if (!limits) return limits.error();
    limits_ = *limits;
    const auto weight = static_cast<std::size_t>(product.rows) *
                        static_cast<std::size_t>(product.cols) * sizeof(bf16);
    copies_ = static_cast<int>(kBeyondCache / weight) + 2;
    auto weights = DeviceBuffer::make(weight * static_cast<std::size_t>(copies_));
    if (!weights) return weights.error();
    weights_ = std::move(*weights);
    REPLAYSSM_TRY(cuda::launch_random(
        {weights_.as<bf16>(), static_cast<std::int64_t>(weights_.bytes() / sizeof(bf16)), 0.05f, 1},
        stream_));
    const auto widest = static_cast<std::size_t>(128) *
                        static_cast<std::size_t>(std::max(2 * product.cols, product.rows)) *
                        sizeof(float);
    for (DeviceBuffer* buffer : {&from_, &gate_, &x_, &out_, &expected_}) {
      auto made = DeviceBuffer::make(widest);
      if (!made) return made.error();
      *buffer = std::move(*made);
      REPLAYSSM_TRY(cuda::launch_random(
          {buffer->as<bf16>(), static_cast<std::int64_t>(widest / sizeof(bf16)), 1.0f, 7},
          stream_));
    }
    const std::vector<float> ones(static_cast<std::size_t>(product.cols), 1.0f);
    auto scale = DeviceBuffer::copy_of(ones.data(), ones.size() * sizeof(float));
    if (!scale) return scale.error();
    scale_ = std::move(*scale);
    auto gemm = cuda::Gemm::make();
    if (!gemm) return gemm.error();
    gemm_ = std::make_unique<cuda::Gemm>(std::move(*gemm));
    for (const int tokens : {1, 2, 4, 8, 16, 32, 64, 128}) REPLAYSSM_TRY(time(tokens));
    return {};
  }

 private:
  DeviceMatrix weight(int copy) const {
    return {weights_.as<bf16>() +
                static_cast<std::int64_t>(copy % copies_) * product_.rows * product_.cols,
            product_.rows, product_.cols};
  }

  cuda::MatvecArgs matvec(int copy, bf16* out) const {
    cuda::MatvecArgs args;
    args.input = product_.input;
    args.from = from_.as<bf16>();
    args.scale = scale_.as<float>();
    args.eps = 1e-6f;
    args.gate = gate_.as<bf16>();
    args.head_dim = 256;
    args.weight = weight(copy);
    args.out = out;
    args.add = product_.add;
    return args;
  }

  // The same by separate launches.
  Status separate(int tokens, int copy, bf16* out) {
    switch (product_.input) {
      case MatvecInput::rms_norm:
        REPLAYSSM_TRY(cuda::launch_rms_norm({from_.as<bf16>(), nullptr, scale_.as<float>(), 1e-6f,
                                             x_.as<bf16>(), tokens, product_.cols},
                                            stream_));
        break;
      case MatvecInput::gated_norm:
        REPLAYSSM_TRY(cuda::launch_gated_norm(
            {from_.as<bf16>(), gate_.as<bf16>(), product_.cols, scale_.as<float>(), 1e-6f,
             x_.as<bf16>(), tokens, product_.cols / 128},
            stream_));
        break;
      default:
        REPLAYSSM_TRY(cuda::launch_silu_product(
            {from_.as<bf16>(), x_.as<bf16>(), tokens, product_.cols}, stream_));
    }
    return gemm_->run(weight(copy), x_.as<bf16>(), tokens, {out, DType::bf16, product_.add},
                      stream_);
  }

  Result<double> compare(int tokens) {
    const std::size_t count =
        static_cast<std::size_t>(tokens) * static_cast<std::size_t>(product_.rows);
    for (const DeviceBuffer* buffer : {&out_, &expected_}) {
      REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
          cudaMemsetAsync(buffer->as<void>(), 0, count * sizeof(bf16), stream_)));
    }
    REPLAYSSM_TRY(cuda::launch_matvec(matvec(0, out_.as<bf16>()), stream_));
    REPLAYSSM_TRY(separate(tokens, 0, expected_.as<bf16>()));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream_)));
    std::vector<bf16> got(count), want(count);
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpy(got.data(), out_.as<void>(), count * sizeof(bf16), cudaMemcpyDeviceToHost)));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpy(want.data(), expected_.as<void>(),
                                                   count * sizeof(bf16), cudaMemcpyDeviceToHost)));
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      worst = std::max(worst, std::abs(double{to_float(got[i])} - to_float(want[i])));
      largest = std::max(largest, std::abs(double{to_float(want[i])}));
    }
    return worst / largest;
  }

  void report(int tokens, const char* way, double us, double error) const {
    const double bytes = static_cast<double>(weight(0).bytes());
    std::printf(
        "{\"product\":\"%s\",\"tokens\":%d,\"way\":\"%s\",\"us\":%.2f,\"tb_per_s\":%.3f,"
        "\"difference\":%.2e}\n",
        product_.name, tokens, way, us, bytes / us * 1e-6, error);
    std::fflush(stdout);
  }

  Status time(int tokens) {
    const int launches = std::max(2 * copies_, 12);
    if (cuda::matvec_fits(weight(0), tokens, limits_.shared_bytes_per_block)) {
      const auto error = compare(tokens);
      if (!error) return error.error();
      // Both round to bf16 once: two units of 2^-8 apart where sums differ in their last bits.
      if (!(*error < 0x1p-7)) return refuse("difference of the products", *error, "below 2^-7");
      const auto us = time_launches(stream_, launches, [&](int i) {
        return cuda::launch_matvec(matvec(i, out_.as<bf16>()), stream_);
      });
      if (!us) return us.error();
      report(tokens, "matvec", *us, *error);
    }
    const auto us = time_launches(stream_, launches,
                                  [&](int i) { return separate(tokens, i, out_.as<bf16>()); });
    if (!us) return us.error();
    report(tokens, "separate", *us, 0);
    const auto bare = time_launches(stream_, launches, [&](int i) {
      return gemm_->run(weight(i), x_.as<bf16>(), tokens,
                        {out_.as<bf16>(), DType::bf16, product_.add}, stream_);
    });
    if (!bare) return bare.error();
    report(tokens, "cublasLt", *bare, 0);
    return time_choices(tokens, launches);
  }

  Status time_choices(int tokens, int launches) {
    cublasLtHandle_t handle = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto rows = static_cast<std::uint64_t>(product_.rows),
               cols = static_cast<std::uint64_t>(product_.cols),
               m = static_cast<std::uint64_t>(tokens);
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof(transposed));
    cublasLtMatrixLayoutCreate(&w, CUDA_R_16BF, cols, rows, product_.cols);
    cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, cols, m, product_.cols);
    cublasLtMatrixLayoutCreate(&y, CUDA_R_16BF, rows, m, product_.rows);
    cublasLtMatmulPreferenceCreate(&preference);
    auto workspace = DeviceBuffer::make(std::size_t{32} << 20);
    if (!workspace) return workspace.error();
    const std::size_t bytes = workspace->bytes();
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &bytes, sizeof(bytes));
    cublasLtMatmulHeuristicResult_t found[kChoices];
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(handle, product, w, x, y, y, preference, kChoices, found,
                                   &count);
    const float one = 1, kept = product_.add ? 1 : 0;
    double best = 1e30;
    int which = -1;
    std::string all;
    for (int c = 0; c < count; ++c) {
      const auto us = time_launches(stream_, launches, [&](int i) -> Status {
        const auto status = cublasLtMatmul(handle, product, &one, weight(i).data, w, x_.as<void>(),
                                           x, &kept, out_.as<void>(), y, out_.as<void>(), y,
                                           &found[c].algo, workspace->as<void>(), bytes, stream_);
        return status == CUBLAS_STATUS_SUCCESS ? Status{} : Status{Error{"cublasLtMatmul failed"}};
      });
      if (!us) continue;
      int splits = 0, tile = 0;
      std::size_t written = 0;
      cublasLtMatmulAlgoConfigGetAttribute(&found[c].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                           sizeof(splits), &written);
      cublasLtMatmulAlgoConfigGetAttribute(&found[c].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                           sizeof(tile), &written);
      all += fmt::format(" {:.1f}(tile {} split {})", *us, tile, splits);
      if (*us < best) {
        best = *us;
        which = c;
      }
    }
    if (which >= 0)
      report(tokens, fmt::format("best of {}: number {};{}", count, which, all).c_str(), best, 0);
    cublasLtMatmulPreferenceDestroy(preference);
    for (auto layout : {w, x, y}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(handle);
    return {};
  }

  cuda::Stream stream_;
  cuda::DeviceLimits limits_;
  Product product_{};
  int copies_ = 0;
  DeviceBuffer weights_, from_, gate_, x_, out_, expected_, scale_;
  std::unique_ptr<cuda::Gemm> gemm_;
};

int main_of(const char* filter) {
  for (const Product& product : kProducts) {
    if (std::string(product.name).find(filter) == std::string::npos) continue;
    const Status status = Bench().run(product);
    if (!status) {
      std::fprintf(stderr, "%s: %s\n", product.name, status.error().message.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace replayssm::bench

int main(int argc, char** argv) {
  const char* filter = argc == 3 && std::strcmp(argv[1], "--filter") == 0 ? argv[2] : "";
  return replayssm::bench::main_of(filter);
}
