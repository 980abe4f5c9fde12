// The GPU as a Device, in builds that have the CUDA backend.
#pragma once

#include <memory>

#include "core/result.h"
#include "engine/device.h"

namespace replayssm {

// The current GPU. Error, naming --device: no GPU, one that the kernels are not compiled for, or a
// build without the CUDA backend.
Result<std::unique_ptr<Device>> make_cuda_device();

}  // namespace replayssm
