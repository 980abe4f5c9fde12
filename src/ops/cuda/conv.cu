// conv_window and conv_chunk: a thread has four channels of some tasks.
#include "ops/cuda/conv.cuh"

#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/overlapped_launch.h"

namespace replayssm::cuda {
namespace {

constexpr int kThreads = 128;
// Blocks of a multiprocessor, as registers allow: with one token a turn, and with four.
constexpr int blocks_each(int turn) { return turn == 1 ? 7 : 5; }

__device__ __forceinline__ void gate_of_projection(const GateProjections& args, int i) {
  const int head = i % args.value_heads;
  const int64_t at = i / args.value_heads * args.stride + head;
  args.gate[i] = log_gate(widen(args.a[at]), args.a_log[head], args.dt_bias[head], 0.0f);
  args.beta[i] = beta_of(widen(args.b[at]));
}

// Blocks of a column of the grid have the same channels and share the tasks; those of the last
// column, where there are gates, share them.
template <bool kOutF32, int kTurn>
__global__ void __launch_bounds__(kThreads, blocks_each(kTurn))
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
  if (args.settled == 0) ready();
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kConvChannels;
  const bool has_channels = channel < args.channels;
  ConvWeights weights;
  if (has_channels) weights = load_conv_weights(args, channel);
  // One thread looks up a task, so that a block waits once for all its lookups.
  __shared__ PlacedConvTask tasks[kThreads];
  const int stride = static_cast<int>(gridDim.y);
  for (int first = static_cast<int>(blockIdx.y); first < args.task_count;
       first += stride * kThreads) {
    if (first != static_cast<int>(blockIdx.y)) __syncthreads();  // they are still read
    const int mine = first + static_cast<int>(threadIdx.x) * stride;
    if (mine < args.task_count) tasks[threadIdx.x] = placed(args, args.tasks[mine]);
    __syncthreads();
    if (!has_channels) continue;
    const int count = min(kThreads, (args.task_count - first + stride - 1) / stride);
    // With several tokens a turn, a task's first inputs come while the task before is convolved;
    // with one, more blocks beside each other do as well.
    constexpr bool kAhead = kTurn > 1;
    const auto begin = [&](int i) { return begin_task<kTurn>(args, tasks[i], channel, ready); };
    ConvStart<kTurn> next;
    if constexpr (kAhead) next = begin(0);
    for (int i = 0; i < count; ++i) {
      const ConvStart<kTurn> start = kAhead ? next : begin(i);
      if (kAhead && i + 1 < count) next = begin(i + 1);
      convolve<kOutF32, kTurn>(args, weights, tasks[i], start, channel);
    }
  }
}

}  // namespace

Status launch_conv(const ConvLaunch& args, cudaStream_t stream) {
  if (args.task_count == 0) return {};
  constexpr int kBlockChannels = kThreads * kConvChannels;
  const int slabs = (args.channels + kBlockChannels - 1) / kBlockChannels;
  const auto multiprocessors = current_multiprocessors();
  if (!multiprocessors) return multiprocessors.error();
  const int columns = slabs + (args.gates.gate == nullptr ? 0 : 1);
  const auto launch = [&](auto* kernel, int each) {
    // No more blocks than there is room for at once: one that came later would run all by itself.
    const int share = std::max(each * *multiprocessors / columns, 1);
    const dim3 grid(static_cast<unsigned>(columns),
                    static_cast<unsigned>(std::min(args.task_count, share)));
    return launch_overlapped(kernel, {grid, kThreads}, stream, args, slabs);
  };
  if (args.one_token != 0) {
    return launch(args.out_f32 != 0 ? conv_kernel<true, 1> : conv_kernel<false, 1>, blocks_each(1));
  }
  return launch(args.out_f32 != 0 ? conv_kernel<true, 4> : conv_kernel<false, 4>, blocks_each(4));
}

}  // namespace replayssm::cuda
