// A launch whose kernel may be scheduled before the kernel before it in the stream has ended.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "core/result.h"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {

// Of the current device: what fills it once.
inline Result<int> current_multiprocessors() {
  int device = 0, count = 0;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGetDevice(&device)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device)));
  return count;
}

struct LaunchShape {
  dim3 grid;
  unsigned threads = 0;
  std::size_t shared_bytes = 0;
  bool overlap = true;  // false: an ordinary launch
};

// The kernel calls ptx::wait_for_previous_launch() before it reads anything that a launch of the
// same step makes, and before it writes anything; ptx::allow_next_launch() only after that. So when
// a kernel begins early, everything before its predecessor has ended.
template <class... Parameters>
Status launch_overlapped(void (*kernel)(Parameters...), const LaunchShape& shape,
                         cudaStream_t stream,
                         const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = shape.overlap ? 1 : 0;
  return REPLAYSSM_CUDA_STATUS(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace replayssm::cuda
