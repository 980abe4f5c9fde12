// Where an engine keeps its sequences and evaluates its model: the host, or a GPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "core/memory_space.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "model/model.h"
#include "ops/linear_ops.h"
#include "replay/geometry.h"

namespace replayssm {

enum class DeviceKind { cpu, cuda };

std::string_view name_of(DeviceKind device);

// What the device's operations ask of record rings.
RingAccess ring_access(DeviceKind device);

// The most of what one step may have, for buffers that are made with the model.
struct ModelSizes {
  int rows = 0;
  int logit_rows = 0;
  int page_tokens = 16;
  int context_length = 0;  // of the longest request; 0: the model's
  bool graphs = true;      // where the device has them
};

// Owns what everything on the device shares. Destroyed after the model and the sequences.
class Device {
 public:
  virtual ~Device() = default;

  virtual MemorySpace& memory() = 0;
  virtual LinearOps& ops() = 0;
  // Bytes that can be allocated now.
  virtual Result<std::int64_t> free_memory() const = 0;
  // As Model::load(), for this device.
  virtual Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& directory,
                                                    const ModelOptions& options,
                                                    const ModelSizes& sizes) = 0;
};

// `pool` outlives the device. Error: this build or this machine has no such device.
Result<std::unique_ptr<Device>> make_device(DeviceKind device, ThreadPool& pool);
using DeviceMaker = std::function<Result<std::unique_ptr<Device>>(DeviceKind, ThreadPool&)>;

// Bytes that a model allocates on the device beside its weights: its activations, and what the
// libraries that it uses need. Host memory for logits is not among them.
std::int64_t device_workspace_bytes(DeviceKind device, const ModelConfig& config,
                                    const ModelOptions& options, const ModelSizes& sizes,
                                    int threads);

// What is planned for captured steps, and for the code that a device's libraries load.
std::int64_t device_graph_bytes(DeviceKind device);

}  // namespace replayssm
