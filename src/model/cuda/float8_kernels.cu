#include "model/cuda/float8_kernels.h"

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "model/cuda/decoder_math.cuh"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/overlapped_launch.h"

namespace replayssm::cuda {
namespace {

constexpr int kBlock = 128;  // numbers with one multiplier: half a warp's octets
constexpr float kLargest = 448;
constexpr int kThreads = 128;
static_assert(kBlock == kWarp / 2 * kOctet);

__device__ __forceinline__ uint32_t codes_of(float a, float b) {
  return __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, __NV_E4M3);
}

// Half a warp has a block of numbers.
__global__ void quantise_kernel(const __grid_constant__ QuantiseArgs args) {
  ptx::wait_for_previous_launch();
  ptx::allow_next_launch();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kOctet;
  if (at >= static_cast<int64_t>(args.padded) * args.cols) return;  // whole blocks of numbers
  const int64_t token = at / args.cols;
  const Octet x = token < args.tokens ? load_octet(args.x + at) : Octet{};
  float largest = 0;
  // fmaxf drops a NaN.
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    largest = fmaxf(largest, isfinite(x.x[i]) ? fabsf(x.x[i]) : INFINITY);
  }
#pragma unroll
  for (int distance = kWarp / 4; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(half_warp_mask(), largest, distance));
  }
  const float scale = largest == 0 ? 1.0f : isfinite(largest) ? largest / kLargest : NAN;
  uint32_t pair[kOctet / 2];
#pragma unroll
  for (int i = 0; i < kOctet; i += 2) pair[i / 2] = codes_of(x.x[i] / scale, x.x[i + 1] / scale);
  *reinterpret_cast<uint2*>(args.codes + at) = {pair[0] | pair[1] << 16, pair[2] | pair[3] << 16};
  if (at % kBlock == 0) args.scales[at % args.cols / kBlock * args.padded + token] = scale;
}

__global__ void random_codes_kernel(const __grid_constant__ RandomCodesArgs args) {
  constexpr uint64_t kBelowTwo = 0xbfbfbfbfbfbfbfbfull;  // without the exponent's highest bit
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count / 8;
       i += step) {
    reinterpret_cast<uint64_t*>(args.to)[i] =
        mixed(args.seed + static_cast<uint64_t>(i)) & kBelowTwo;
  }
}

}  // namespace

Status launch_quantise(const QuantiseArgs& args, cudaStream_t stream) {
  const int64_t threads = static_cast<int64_t>(args.padded) * args.cols / kOctet;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  if (blocks == 0) return {};
  return launch_overlapped(quantise_kernel, {blocks, kThreads}, stream, args);
}

Status launch_random_codes(const RandomCodesArgs& args, cudaStream_t stream) {
  if (args.count == 0) return {};
  random_codes_kernel<<<1024, 256, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
