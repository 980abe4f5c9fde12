// Without the CUDA backend.
#include "engine/cuda_device.h"

namespace replayssm {

Result<std::unique_ptr<Device>> make_cuda_device() {
  return Error{
      "--device: cuda is not accepted; this build has no CUDA backend (cmake --preset cuda makes "
      "one); expected cpu"};
}

}  // namespace replayssm
