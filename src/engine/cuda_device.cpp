#include "engine/cuda_device.h"

#include <utility>

#include "model/cuda/cuda_decoder.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_space.h"
#include "ops/cuda/device_memory.h"

namespace replayssm {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(cuda::Stream stream, cuda::CudaSpace space, std::unique_ptr<LinearOps> ops)
      : stream_(std::move(stream)), space_(std::move(space)), ops_(std::move(ops)) {}

  MemorySpace& memory() override { return space_; }
  LinearOps& ops() override { return *ops_; }
  Result<std::int64_t> free_memory() const override {
    std::size_t free = 0, total = 0;
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemGetInfo(&free, &total)));
    return static_cast<std::int64_t>(free);
  }
  Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& directory,
                                            const ModelOptions& options,
                                            const ModelSizes& sizes) override {
    const auto config = load_config(directory);
    if (!config) return config.error();
    const auto float8 = kept_float8();
    if (!float8) return float8.error();
    auto weights =
        options.load_format == LoadFormat::dummy
            ? random_weights(*config, options.draft_head, DummyMatrices::shapes_only, *float8)
            : load_weights(directory, *config, options.draft_head, *float8);
    if (!weights) return weights.error();
    return cuda::make_cuda_decoder(
        *config, std::move(*weights), options,
        {sizes.rows, sizes.logit_rows, sizes.page_tokens, sizes.context_length, sizes.graphs},
        stream_);
  }

 private:
  // cuBLASLt multiplies float8 with scales of blocks on Hopper.
  static Result<Float8> kept_float8() {
    int device = 0, major = 0;
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGetDevice(&device)));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)));
    return major == 9 ? Float8::kept : Float8::dequantised;
  }

  cuda::Stream stream_;
  cuda::CudaSpace space_;
  std::unique_ptr<LinearOps> ops_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    return Error{"--device: cuda is not accepted; this machine has no GPU; expected cpu"};
  }
  auto stream = cuda::Stream::make();
  if (!stream) return Error{fmt::format("--device: cuda: {}", stream.error().message)};
  auto space = cuda::CudaSpace::make(*stream);
  if (!space) return Error{fmt::format("--device: cuda: {}", space.error().message)};
  auto ops = cuda::make_cuda_ops(*stream);
  if (!ops) return Error{fmt::format("--device: {}", ops.error().message)};
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>(std::move(*stream), std::move(*space), std::move(*ops)));
}

}  // namespace replayssm
