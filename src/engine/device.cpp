#include "engine/device.h"

#include "engine/cuda_device.h"
#include "engine/machine_memory.h"
#include "model/cuda/decoder_buffers.h"
#include "model/decoder.h"

namespace replayssm {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(ThreadPool& pool) : pool_(pool), ops_(make_cpu_ops(pool)) {}

  MemorySpace& memory() override { return host_space(); }
  LinearOps& ops() override { return *ops_; }
  Result<std::int64_t> free_memory() const override { return available_memory(); }
  Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& directory,
                                            const ModelOptions& options,
                                            const ModelSizes& /*sizes*/) override {
    return Model::load(directory, options, pool_, *ops_);
  }

 private:
  ThreadPool& pool_;
  std::unique_ptr<LinearOps> ops_;
};

}  // namespace

std::string_view name_of(DeviceKind device) { return device == DeviceKind::cpu ? "cpu" : "cuda"; }

RingAccess ring_access(DeviceKind device) {
  return device == DeviceKind::cpu ? kCpuRingAccess : RingAccess::shared;
}

Result<std::unique_ptr<Device>> make_device(DeviceKind device, ThreadPool& pool) {
  if (device == DeviceKind::cuda) return make_cuda_device();
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(pool));
}

std::int64_t device_graph_bytes(DeviceKind device) {
  return device == DeviceKind::cuda ? cuda::kGraphBytes : 0;
}

std::int64_t device_workspace_bytes(DeviceKind device, const ModelConfig& config,
                                    const ModelOptions& options, const ModelSizes& sizes,
                                    int threads) {
  if (device == DeviceKind::cuda) {
    const int row_pages = cuda::most_row_pages(config, sizes.context_length, sizes.page_tokens);
    return cuda::decoder_device_bytes(
        config, {options.max_step_tokens, sizes.rows, sizes.logit_rows, row_pages},
        options.draft_head, options.deterministic);
  }
  return decoder_workspace_bytes(config, options, threads, options.max_step_tokens);
}

}  // namespace replayssm
