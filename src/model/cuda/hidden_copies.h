// Hidden states of a step on their way to the host: copied while it runs, by its graph where there
// is one.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "core/bfloat16.h"
#include "core/result.h"

namespace replayssm::cuda {

// Owns pinned memory. One thread, one stream.
class HiddenCopies {
 public:
  // The taps of the next step (model.h), for steps of at most so many tokens. Other taps than
  // before: no step may be in progress.
  Status set(std::span<const int> taps, int most_tokens, int width);
  // Changes when the taps do; what is captured in a graph belongs to one version.
  int version() const { return version_; }

  bool wants(int tap) const;
  // Puts the copy of `values`, [tokens, width] on the device, on `stream`, once for every place of
  // `tap`.
  Status copy(int tap, const bf16* values, int tokens, cudaStream_t stream);

  // What was copied, [tokens, taps, width], once the step is done.
  void widen(std::span<float> values) const;

 private:
  struct PinnedDeleter {
    void operator()(bf16* memory) const { cudaFreeHost(memory); }
  };
  std::unique_ptr<bf16, PinnedDeleter> pinned_;  // [most tokens and padding, taps, width]
  std::vector<int> taps_;
  std::size_t width_ = 0;
  int version_ = 0;
};

}  // namespace replayssm::cuda
