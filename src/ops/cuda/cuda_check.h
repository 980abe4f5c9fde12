// Every CUDA call is checked, and its error says where it happened.
#pragma once

#include <cuda_runtime_api.h>

#include "core/result.h"

namespace replayssm::cuda {

inline Status cuda_status(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return {};
  return Error{fmt::format("{}:{}: {} failed: {} ({})", file, line, call, cudaGetErrorString(error),
                           cudaGetErrorName(error))};
}

}  // namespace replayssm::cuda

// A Status: the call's error with its file and line.
#define REPLAYSSM_CUDA_STATUS(call) \
  ::replayssm::cuda::cuda_status((call), #call, __FILE__, __LINE__)
