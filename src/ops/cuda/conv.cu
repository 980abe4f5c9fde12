// conv_window and conv_chunk: a thread has eight channels of some tasks.
#include "ops/cuda/conv.cuh"

#include <cuda_runtime.h>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/overlapped_launch.h"

namespace replayssm::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kBlocksEach = 4;  // of a multiprocessor, where there are so many

// The weights of a warp's channels, which lie 128 bytes a lane: read 16 bytes a lane and exchanged.
__device__ __forceinline__ ConvWeights load_weights_together(const ConvLaunch& args, int channel) {
  constexpr int kWarpChannels = kWarp * kConvChannels;
  __shared__ float4 exchange[kThreads / kWarp][kWarpChannels];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float4* const rows = exchange[threadIdx.x / kWarp];
  const int first = channel - lane * kConvChannels;
  // Lanes that read together would meet in one bank: eight neighbours change places.
  const auto place = [](int i) { return i ^ ((i >> 3) & 7); };
#pragma unroll
  for (int i = 0; i < kConvChannels; ++i) {
    const int at = i * kWarp + lane;
    if (first + at < args.channels) {
      rows[place(at)] = reinterpret_cast<const float4*>(args.weight)[first + at];
    }
  }
  __syncwarp();
  ConvWeights weights;
#pragma unroll
  for (int i = 0; i < kConvChannels; ++i) {
    weights.taps[i] = rows[place(lane * kConvChannels + i)];
  }
  return weights;
}

__device__ __forceinline__ void gate_of_projection(const GateProjections& args, int i) {
  const int head = i % args.value_heads;
  const int64_t at = i / args.value_heads * args.stride + head;
  args.gate[i] = log_gate(widen(args.a[at]), args.a_log[head], args.dt_bias[head], 0.0f);
  args.beta[i] = beta_of(widen(args.b[at]));
}

// Blocks of a column of the grid have the same channels and share the tasks; those of the last
// column, where there are gates, share them.
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    conv_kernel(const __grid_constant__ ConvLaunch args, int slabs) {
  bool is_ready = false;
  const auto ready = [&] {
    if (is_ready) return;
    is_ready = true;
    ptx::wait_for_previous_launch();
    ptx::allow_next_launch();
  };
  if (static_cast<int>(blockIdx.x) == slabs) {
    ready();
    const int count = args.gates.tokens * args.gates.value_heads;
    for (int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); i < count;
         i += static_cast<int>(gridDim.y) * kThreads) {
      gate_of_projection(args.gates, i);
    }
    return;
  }
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kConvChannels;
  const ConvWeights weights = load_weights_together(args, channel);
  if (args.settled == 0) ready();
  if (channel >= args.channels) return;
  for (int task = static_cast<int>(blockIdx.y); task < args.task_count;
       task += static_cast<int>(gridDim.y)) {
    convolve(args, weights, args.tasks[task], channel, ready);
  }
}

}  // namespace

Status launch_conv(const ConvLaunch& args, cudaStream_t stream) {
  if (args.task_count == 0) return {};
  const int octets = args.channels / kConvChannels;
  const int slabs = (octets + kThreads - 1) / kThreads;
  const auto multiprocessors = current_multiprocessors();
  if (!multiprocessors) return multiprocessors.error();
  const int share = (kBlocksEach * *multiprocessors + slabs - 1) / slabs;
  const int columns = slabs + (args.gates.gate == nullptr ? 0 : 1);
  const dim3 grid(static_cast<unsigned>(columns),
                  static_cast<unsigned>(args.task_count < share ? args.task_count : share));
  return launch_overlapped(conv_kernel, {grid, kThreads}, stream, args, slabs);
}

}  // namespace replayssm::cuda
