#include "ops/cuda/word_writes.h"

#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

__global__ void write_places(const __grid_constant__ WordWrites writes) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < writes.count) *writes.to[i] = writes.word[i];
}

}  // namespace

Status launch_word_writes(const WordWrites& writes, cudaStream_t stream) {
  if (writes.count == 0) return {};
  write_places<<<1, kMostWordWrites, 0, stream>>>(writes);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
