#include "model/cuda/hidden_copies.h"

#include <algorithm>

#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {

Status HiddenCopies::set(std::span<const int> taps, int most_tokens, int width) {
  if (std::equal(taps.begin(), taps.end(), taps_.begin(), taps_.end())) return {};
  taps_.clear();
  pinned_.reset();
  ++version_;
  if (taps.empty()) return {};
  bf16* pinned = nullptr;
  width_ = static_cast<std::size_t>(width);
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaMallocHost(reinterpret_cast<void**>(&pinned),
                     static_cast<std::size_t>(most_tokens) * taps.size() * width_ * sizeof(bf16))));
  pinned_.reset(pinned);
  taps_.assign(taps.begin(), taps.end());
  return {};
}

bool HiddenCopies::wants(int tap) const {
  return std::find(taps_.begin(), taps_.end(), tap) != taps_.end();
}

Status HiddenCopies::copy(int tap, const bf16* values, int tokens, cudaStream_t stream) {
  const std::size_t row = width_ * sizeof(bf16);
  for (std::size_t at = 0; at < taps_.size(); ++at) {
    if (taps_[at] != tap) continue;
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpy2DAsync(pinned_.get() + at * width_, taps_.size() * row, values, row, row,
                          static_cast<std::size_t>(tokens), cudaMemcpyDeviceToHost, stream)));
  }
  return {};
}

void HiddenCopies::widen(std::span<float> values) const {
  std::transform(pinned_.get(), pinned_.get() + values.size(), values.begin(),
                 [](bf16 x) { return to_float(x); });
}

}  // namespace replayssm::cuda
