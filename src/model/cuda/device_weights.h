// A decoder's weights on the device, as its products take them: matrices in bf16, or in float8
// where they are kept so (Float8::kept) and have whole blocks; those with the same input one above
// the other, so that one product serves all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "model/cuda/gemm.h"
#include "model/weights.h"
#include "ops/cuda/device_memory.h"

namespace replayssm::cuda {

// h, H, HV, C and E as in model/weights.h.
struct DeviceGdn {
  DeviceMatrix in;   // [C + E + 2 HV and padding, h]: q k v, z, b, a; zeros up to a multiple of 16
  DeviceMatrix out;  // [h, E]
  const float* conv = nullptr;        // [C, 4]
  const float* a_log = nullptr;       // [HV]
  const float* dt_bias = nullptr;     // [HV]
  const float* norm_scale = nullptr;  // [V]
};

struct DeviceAttention {
  DeviceMatrix in;  // q with its gates, k, v
  DeviceMatrix out;
  const float* q_norm_scale = nullptr;  // [head_dim]
  const float* k_norm_scale = nullptr;  // [head_dim]
};

struct DeviceLayer {
  const float* mixer_norm_scale = nullptr;  // [h]
  std::variant<DeviceGdn, DeviceAttention> mixer;
  const float* mlp_norm_scale = nullptr;  // [h]
  DeviceMatrix gate_up;                   // [2 f, h]
  DeviceMatrix down;                      // [h, f]
};

// As MtpWeights.
struct DeviceMtp {
  DeviceMatrix fc;                              // [h, 2 h]
  const float* embedding_norm_scale = nullptr;  // [h]
  const float* hidden_norm_scale = nullptr;     // [h]
  DeviceLayer layer;                            // its mixer is attention
  const float* norm_scale = nullptr;            // [h]
};

// Owns the memory of all of them, one allocation. Move-only.
class DeviceWeights {
 public:
  // Copies everything to the current device and waits for it. Matrices of another type are rounded
  // to bf16, those without data (DummyMatrices::shapes_only) are filled at random. Error: Kimi
  // Delta Attention, which is not built for cuda; out of memory.
  static Result<DeviceWeights> copy_of(const Weights& weights, const ModelConfig& config);

  // Bytes that copy_of() will allocate.
  static std::int64_t bytes_of(const Weights& weights, const ModelConfig& config);

  DeviceMatrix embedding;  // [vocab_rows, h]
  DeviceMatrix head;
  const float* final_norm_scale = nullptr;  // [h]
  std::vector<DeviceLayer> layers;
  std::optional<DeviceMtp> draft_head;

  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.bytes()); }

 private:
  DeviceBuffer memory_;
};

}  // namespace replayssm::cuda
