// Some words on their way to device memory, as the parameters of a launch: nothing waits, and no
// host memory has to outlive the call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/memory_space.h"
#include "core/result.h"

namespace replayssm::cuda {

inline constexpr int kMostWordWrites =
    static_cast<int>(MemorySpace::kSmallWrite / sizeof(std::uint32_t));

struct WordWrites {
  std::uint32_t* to[kMostWordWrites] = {};  // device, no place twice
  std::uint32_t word[kMostWordWrites] = {};
  int count = 0;
};

// In order with the stream's other work, also with kernels that begin early: it does not itself.
Status launch_word_writes(const WordWrites& writes, cudaStream_t stream);

}  // namespace replayssm::cuda
