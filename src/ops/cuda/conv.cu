// conv_window and conv_chunk: a thread has four channels of some tasks.
#include "ops/cuda/conv.cuh"

#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/overlapped_launch.h"

namespace replayssm::cuda {
namespace {

// Blocks of a multiprocessor, as registers allow.
template <class Shape>
constexpr int kBlocksEach = Shape::kTurn == 1   ? 7
                            : Shape::kTurn == 4 ? 5
                                                : 4;

template <bool kOutF32, class Shape>
__global__ void __launch_bounds__(kConvThreads, kBlocksEach<Shape>)
    conv_kernel(const __grid_constant__ ConvLaunch args, int slabs) {
  __shared__ PlacedConvTask tasks[kConvThreads];
  bool is_ready = false;
  const auto ready = [&] {
    if (is_ready) return;
    is_ready = true;
    ptx::wait_for_previous_launch();
    ptx::allow_next_launch();
  };
  const ConvPlace at{static_cast<int>(blockIdx.x), slabs, static_cast<int>(blockIdx.y),
                     static_cast<int>(gridDim.y)};
  conv_block<kOutF32, Shape>(args, at, tasks, ready);
}

}  // namespace

Status launch_conv(const ConvLaunch& args, cudaStream_t stream) {
  if (args.task_count == 0) return {};
  constexpr int kBlockChannels = kConvThreads * kConvChannels;
  const int slabs = (args.channels + kBlockChannels - 1) / kBlockChannels;
  const auto multiprocessors = current_multiprocessors();
  if (!multiprocessors) return multiprocessors.error();
  const int columns = slabs + (args.gates.gate == nullptr ? 0 : 1);
  const auto launch = [&]<class Shape>(Shape) {
    // No more blocks than there is room for at once: one that came later would run all by itself.
    const int share = std::max(kBlocksEach<Shape> * *multiprocessors / columns, 1);
    const dim3 grid(static_cast<unsigned>(columns),
                    static_cast<unsigned>(std::min(args.task_count, share)));
    return launch_overlapped(
        args.out_f32 != 0 ? conv_kernel<true, Shape> : conv_kernel<false, Shape>,
        {grid, kConvThreads}, stream, args, slabs);
  };
  return with_conv_shape(args, launch);
}

}  // namespace replayssm::cuda
