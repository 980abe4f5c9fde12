// The CPU with memory whose transfers are slow.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include "engine/device.h"
#include "slow_transfers.h"

namespace replayssm {

class SlowDevice final : public Device {
 public:
  explicit SlowDevice(std::unique_ptr<Device> cpu) : cpu_(std::move(cpu)) {}

  MemorySpace& memory() override { return memory_; }
  LinearOps& ops() override { return cpu_->ops(); }
  Result<std::int64_t> free_memory() const override { return cpu_->free_memory(); }
  Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& directory,
                                            const ModelOptions& options,
                                            const ModelSizes& sizes) override {
    return cpu_->load_model(directory, options, sizes);
  }

 private:
  std::unique_ptr<Device> cpu_;
  SlowTransfers memory_;
};

inline Result<std::unique_ptr<Device>> make_slow_device(DeviceKind kind, ThreadPool& pool) {
  auto cpu = make_device(kind, pool);
  if (!cpu) return cpu.error();
  return std::unique_ptr<Device>(std::make_unique<SlowDevice>(std::move(*cpu)));
}

}  // namespace replayssm
