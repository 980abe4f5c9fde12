#include "model/cuda/matvec.h"

#include <cuda_runtime.h>

#include "model/cuda/decoder_math.cuh"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;

constexpr std::size_t kSharedLimit = std::size_t{200} << 10;

// Token `token` of x, by the whole block, into shared memory.
template <MatvecInput kInput>
__device__ __forceinline__ void make_input(const MatvecArgs& args, int token, bf16* x) {
  const int cols = args.weight.cols;
  const int first = static_cast<int>(threadIdx.x) * kOctet;
  constexpr int kStep = kThreads * kOctet;
  if constexpr (kInput == MatvecInput::rms_norm) {
    const int64_t row = args.rows == nullptr ? token : args.rows[token];
    const bf16* const from = args.from + row * cols;
    float squares = 0;
    for (int i = first; i < cols; i += kStep) squares += sum_of_squares(load_octet(from + i));
    const float mean = block_sum(squares) / static_cast<float>(cols);
    const float inverse = 1.0f / sqrtf(mean + args.eps);
    for (int i = first; i < cols; i += kStep) {
      store_octet(x + i, scaled(load_octet(from + i), inverse, args.scale + i));
    }
  } else if constexpr (kInput == MatvecInput::silu_product) {
    const bf16* const gate = args.from + static_cast<int64_t>(token) * 2 * cols;
    for (int i = first; i < cols; i += kStep) {
      store_octet(x + i, silu_product(load_octet(gate + i), load_octet(gate + cols + i)));
    }
  } else if constexpr (kInput == MatvecInput::gated_norm) {
    const bf16* const from = args.from + static_cast<int64_t>(token) * cols;
    const bf16* const gate = args.gate + token * args.gate_stride;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int at = static_cast<int>(threadIdx.x) / kWarp * kValueDim; at < cols;
         at += kWarps * kValueDim) {
      *reinterpret_cast<uint2*>(x + at + 4 * lane) =
          gated_norm(from + at, gate + at, args.scale, args.eps);
    }
  } else if constexpr (kInput == MatvecInput::sigmoid_product) {
    const bf16* const from = args.from + static_cast<int64_t>(token) * cols;
    const bf16* const gate = args.gate + token * args.gate_stride;
    for (int i = first; i < cols; i += kStep) {
      // Behind the queries of each head lies its gate.
      const int at = i + i / args.head_dim * args.head_dim;
      store_octet(x + i, sigmoid_product(load_octet(from + i), load_octet(gate + at)));
    }
  } else {
    const bf16* const from = args.from + static_cast<int64_t>(token) * cols;
    for (int i = first; i < cols; i += kStep) store_octet(x + i, load_octet(from + i));
  }
}

// A warp multiplies one row of the weight at a time: lane l takes octets l, l + 32, .. of it, sums
// them in ascending order, and the lanes' sums are added in a tree.
template <int kTokens, MatvecInput kInput>
__global__ void __launch_bounds__(kThreads) matvec_kernel(const __grid_constant__ MatvecArgs args) {
  extern __shared__ uint4 shared[];
  bf16* const x = reinterpret_cast<bf16*>(shared);
  const int octets = args.weight.cols / kOctet;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(gridDim.x) * kWarps;
  int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;

  // Loads of 16 bytes that a lane has under way: as many as registers hold.
  constexpr int kAhead = kTokens <= 2 ? 8 : 4;
  uint4 ahead[kAhead];
  const auto load = [&](int of_row, int from) {
    const uint4* const weight =
        reinterpret_cast<const uint4*>(args.weight.data) + static_cast<int64_t>(of_row) * octets;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = from + i * kWarp + lane;
      ahead[i] = at < octets ? __ldcs(weight + at) : uint4{0, 0, 0, 0};
    }
  };
  // Weights are nobody's result: they may be read before the kernel before has ended.
  if (row < args.weight.rows) load(row, 0);
  ptx::wait_for_previous_launch();
#pragma unroll
  for (int token = 0; token < kTokens; ++token) {
    make_input<kInput>(args, token, x + token * args.weight.cols);
    __syncthreads();
  }
  ptx::allow_next_launch();

  for (bool loaded = true; row < args.weight.rows; row += warps) {
    float sums[kTokens] = {};
    for (int from = 0; from < octets; from += kAhead * kWarp) {
      if (!loaded) load(row, from);
      loaded = false;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = from + i * kWarp + lane;
        if (at >= octets) continue;
        const float w[kOctet] = {low_half(ahead[i].x), high_half(ahead[i].x),
                                 low_half(ahead[i].y), high_half(ahead[i].y),
                                 low_half(ahead[i].z), high_half(ahead[i].z),
                                 low_half(ahead[i].w), high_half(ahead[i].w)};
#pragma unroll
        for (int token = 0; token < kTokens; ++token) {
          const Octet v = load_octet(x + token * args.weight.cols + at * kOctet);
#pragma unroll
          for (int j = 0; j < kOctet; ++j) sums[token] = fmaf(w[j], v.x[j], sums[token]);
        }
      }
    }
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      const float sum = warp_sum(sums[token]);
      const int64_t at = static_cast<int64_t>(token) * args.weight.rows + row;
      if (lane != 0) continue;
      if (args.out_type == DType::f32) {
        static_cast<float*>(args.out)[at] = sum;
      } else {
        bf16* const out = static_cast<bf16*>(args.out) + at;
        *out = narrow<bf16>(args.add ? widen(*out) + sum : sum);
      }
    }
  }
}

template <int kTokens, MatvecInput kInput>
Status launch(const MatvecArgs& args, cudaStream_t stream) {
  const auto kernel = matvec_kernel<kTokens, kInput>;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(kSharedLimit))));
  int device = 0, multiprocessors = 0;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGetDevice(&device)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)));
  const std::size_t bytes =
      static_cast<std::size_t>(kTokens) * static_cast<std::size_t>(args.weight.cols) * sizeof(bf16);
  const int blocks = (args.weight.rows + kWarps - 1) / kWarps;
  const int most = multiprocessors * (bytes <= kSharedLimit / 2 ? 2 : 1);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks < most ? blocks : most));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return REPLAYSSM_CUDA_STATUS(cudaLaunchKernelEx(&config, kernel, args));
}

template <int kTokens>
Status launch_tokens(const MatvecArgs& args, cudaStream_t stream) {
  switch (args.input) {
    case MatvecInput::rms_norm:
      return launch<kTokens, MatvecInput::rms_norm>(args, stream);
    case MatvecInput::silu_product:
      return launch<kTokens, MatvecInput::silu_product>(args, stream);
    case MatvecInput::gated_norm:
      return launch<kTokens, MatvecInput::gated_norm>(args, stream);
    case MatvecInput::sigmoid_product:
      return launch<kTokens, MatvecInput::sigmoid_product>(args, stream);
    case MatvecInput::plain:
      return launch<kTokens, MatvecInput::plain>(args, stream);
  }
  return {};
}

}  // namespace

bool matvec_fits(const DeviceMatrix& weight, int tokens) {
  const auto bytes =
      static_cast<std::size_t>(tokens) * static_cast<std::size_t>(weight.cols) * sizeof(bf16);
  return tokens >= 1 && tokens <= kMatvecTokens && weight.cols % kOctet == 0 &&
         bytes <= kSharedLimit;
}

Status launch_matvec(const MatvecArgs& args, cudaStream_t stream) {
  switch (args.tokens) {
    case 1:
      return launch_tokens<1>(args, stream);
    case 2:
      return launch_tokens<2>(args, stream);
    case 3:
      return launch_tokens<3>(args, stream);
    case 4:
      return launch_tokens<4>(args, stream);
    default:
      return refuse("matvec: tokens", args.tokens, fmt::format("1 to {}", kMatvecTokens));
  }
}

}  // namespace replayssm::cuda
