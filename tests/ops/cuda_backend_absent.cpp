#include "ops/backends.h"

namespace replayssm::tests {

OwnedOps make_cuda_backend() {
  OwnedOps owned;
  owned.absent = "cuda: this build has no CUDA backend (cmake --preset cuda makes one)";
  return owned;
}

}  // namespace replayssm::tests
