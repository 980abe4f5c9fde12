#include "model/cuda/device_weights.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>
#include <utility>

#include "model/cuda/decoder_kernels.h"
#include "model/cuda/float8_kernels.h"
#include "model/float8.h"
#include "model/widen.h"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

constexpr std::size_t kAlignment = 256;  // of every tensor
constexpr int kRowMultiple = 16;         // of a matrix whose rows are padded

// Lays tensors out one after the other. Without memory it only counts; with memory it copies them,
// too. Both passes see the same tensors in the same order.
class Placement {
 public:
  Placement() = default;
  explicit Placement(std::byte* memory) : memory_(memory) {}

  std::size_t bytes() const { return used_; }
  const Status& status() const { return status_; }

  // The matrices one above the other, zeros below them up to a multiple of `row_multiple` rows. The
  // first of them stay float8 where they are, and where their blocks are whole.
  DeviceMatrix stack(std::span<const WeightMatrix* const> parts, int row_multiple = 1) {
    DeviceMatrix all;
    all.cols = parts.front()->cols;
    for (const WeightMatrix* part : parts) all.rows += part->rows;
    const int stacked = all.rows;
    all.rows = (all.rows + row_multiple - 1) / row_multiple * row_multiple;
    const auto rest = std::find_if_not(parts.begin(), parts.end(), stays_float8);
    const auto kept = parts.first(static_cast<std::size_t>(rest - parts.begin()));
    place_float8(kept, all);
    std::byte* to = take(static_cast<std::size_t>(all.bf16_rows()) *
                         static_cast<std::size_t>(all.cols) * sizeof(bf16));
    all.data = reinterpret_cast<const bf16*>(to);
    if (memory_ == nullptr) return all;
    for (const WeightMatrix* part : parts.subspan(kept.size())) to = copy_matrix(*part, to);
    zero(to, static_cast<std::size_t>(all.rows - stacked) * static_cast<std::size_t>(all.cols) *
                 sizeof(bf16));
    return all;
  }
  DeviceMatrix stack(std::initializer_list<const WeightMatrix*> parts, int row_multiple = 1) {
    return stack(std::span(parts.begin(), parts.size()), row_multiple);
  }
  DeviceMatrix matrix(const WeightMatrix& from) { return stack({&from}); }

  const float* vector(const std::vector<float>& from) {
    std::byte* to = take(from.size() * sizeof(float));
    if (memory_ != nullptr) copy(to, from.data(), from.size() * sizeof(float));
    return reinterpret_cast<const float*>(to);
  }

 private:
  std::byte* take(std::size_t bytes) {
    const std::size_t at = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return memory_ == nullptr ? nullptr : memory_ + at;
  }
  void copy(std::byte* to, const void* from, std::size_t bytes) {
    if (!status_.ok()) return;
    status_ = REPLAYSSM_CUDA_STATUS(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  }
  void zero(std::byte* at, std::size_t bytes) {
    if (!status_.ok() || bytes == 0) return;
    status_ = REPLAYSSM_CUDA_STATUS(cudaMemset(at, 0, bytes));
  }
  void fill_at_random(std::byte* at, std::size_t elements, int cols) {
    if (!status_.ok()) return;
    // The size of what it is multiplied with is kept: variance 1 / cols.
    status_ = launch_random({reinterpret_cast<bf16*>(at), static_cast<std::int64_t>(elements),
                             std::sqrt(3.0f / static_cast<float>(cols)), used_},
                            nullptr);
  }
  static std::span<const float> float8_scales_of(const WeightMatrix& from) {
    return {from.block_scales,
            static_cast<std::size_t>(float8_blocks(from.rows) * float8_blocks(from.cols))};
  }
  static bool stays_float8(const WeightMatrix* part) {
    return part->float8 && part->rows % kFloat8Block == 0 && part->cols % kFloat8Block == 0;
  }

  void place_float8(std::span<const WeightMatrix* const> parts, DeviceMatrix& all) {
    Float8Rows& float8 = all.float8;
    for (const WeightMatrix* part : parts) float8.rows += part->rows;
    if (float8.rows == 0) return;
    const auto cols = static_cast<std::size_t>(all.cols);
    const auto pitch = static_cast<std::size_t>(float8_scale_pitch(all.cols));
    const auto blocks = static_cast<std::size_t>(float8_blocks(float8.rows));
    std::byte* to = take(static_cast<std::size_t>(float8.rows) * cols);
    std::byte* const scales = take(blocks * pitch * sizeof(float));
    float8.codes = reinterpret_cast<const std::uint8_t*>(to);
    float8.scales = reinterpret_cast<const float*>(scales);
    if (memory_ == nullptr) return;
    std::vector<float> padded;  // [blocks, pitch]
    for (const WeightMatrix* part : parts) {
      const auto bytes = static_cast<std::size_t>(part->rows) * cols;
      if (part->data != nullptr) {
        copy(to, part->data, bytes);
      } else if (status_.ok()) {
        status_ = launch_random_codes(
            {reinterpret_cast<std::uint8_t*>(to), static_cast<std::int64_t>(bytes), used_},
            nullptr);
      }
      to += bytes;
      append_scales(*part, pitch, padded);
    }
    copy(scales, padded.data(), padded.size() * sizeof(float));
  }
  static void append_scales(const WeightMatrix& part, std::size_t pitch,
                            std::vector<float>& padded) {
    const auto columns = static_cast<std::size_t>(float8_blocks(part.cols));
    // With random codes the size of what they are multiplied with is kept, see RandomCodesArgs.
    const float random = 1.0f / std::sqrt(0.36f * static_cast<float>(part.cols));
    for (std::size_t row = 0; row < static_cast<std::size_t>(float8_blocks(part.rows)); ++row) {
      for (std::size_t column = 0; column < pitch; ++column) {
        const bool exists = column < columns && part.data != nullptr;
        padded.push_back(exists ? part.block_scales[row * columns + column] : random);
      }
    }
  }

  // Returns the address behind the copy.
  std::byte* copy_matrix(const WeightMatrix& from, std::byte* to) {
    const auto elements = static_cast<std::size_t>(from.rows) * static_cast<std::size_t>(from.cols);
    if (from.data == nullptr) {
      fill_at_random(to, elements, from.cols);
    } else if (from.float8) {
      std::vector<bf16> rounded(elements);
      if (status_.ok()) {
        status_ = dequantise_float8({static_cast<const std::byte*>(from.data), elements}, from.rows,
                                    from.cols, float8_scales_of(from), rounded.data());
      }
      copy(to, rounded.data(), elements * sizeof(bf16));
    } else if (from.type == DType::bf16) {
      copy(to, from.data, elements * sizeof(bf16));
    } else {
      std::vector<float> row(static_cast<std::size_t>(from.cols));
      std::vector<bf16> rounded(elements);
      for (int r = 0; r < from.rows; ++r) {
        widen_block(from, r, 1, 0, from.cols, row.data());
        std::transform(row.begin(), row.end(),
                       rounded.begin() + static_cast<std::ptrdiff_t>(row.size()) * r,
                       [](float x) { return to_bf16(x); });
      }
      copy(to, rounded.data(), elements * sizeof(bf16));
    }
    return to + elements * sizeof(bf16);
  }

  std::byte* memory_ = nullptr;
  std::size_t used_ = 0;
  Status status_;
};

DeviceGdn place(Placement& to, const GdnWeights& from) {
  DeviceGdn gdn;
  gdn.in = to.stack({&from.qkv, &from.z, &from.b, &from.a}, kRowMultiple);
  gdn.out = to.matrix(from.out);
  gdn.conv = to.vector(from.conv);
  gdn.a_log = to.vector(from.a_log);
  gdn.dt_bias = to.vector(from.dt_bias);
  gdn.norm_scale = to.vector(from.norm_scale);
  return gdn;
}

DeviceAttention place(Placement& to, const AttentionWeights& from) {
  DeviceAttention attention;
  attention.in = to.stack({&from.q, &from.k, &from.v});
  attention.out = to.matrix(from.out);
  attention.q_norm_scale = to.vector(from.q_norm_scale);
  attention.k_norm_scale = to.vector(from.k_norm_scale);
  return attention;
}

// Precondition: the layer is not KDA.
DeviceLayer place(Placement& to, const LayerWeights& from) {
  DeviceLayer layer;
  layer.mixer_norm_scale = to.vector(from.mixer_norm_scale);
  if (const auto* gdn = std::get_if<GdnWeights>(&from.mixer)) {
    layer.mixer = place(to, *gdn);
  } else {
    layer.mixer = place(to, std::get<AttentionWeights>(from.mixer));
  }
  layer.mlp_norm_scale = to.vector(from.mlp_norm_scale);
  layer.gate_up = to.stack({&from.mlp.gate, &from.mlp.up});
  layer.down = to.matrix(from.mlp.down);
  return layer;
}

// Precondition: no layer is KDA.
void place(Placement& to, const Weights& from, const ModelConfig& config, DeviceWeights& weights) {
  weights.embedding = to.matrix(from.embedding);
  // A head that differs from the embedding counts although the configuration ties it.
  const bool tied = config.tied_head && from.head.data == from.embedding.data;
  weights.head = tied ? weights.embedding : to.matrix(from.head);
  weights.final_norm_scale = to.vector(from.final_norm_scale);
  weights.layers.clear();
  for (const LayerWeights& layer : from.layers) weights.layers.push_back(place(to, layer));
  if (!from.draft_head) return;
  DeviceMtp& head = weights.draft_head.emplace();
  head.fc = to.matrix(from.draft_head->fc);
  head.embedding_norm_scale = to.vector(from.draft_head->embedding_norm_scale);
  head.hidden_norm_scale = to.vector(from.draft_head->hidden_norm_scale);
  head.layer = place(to, from.draft_head->layer);
  head.norm_scale = to.vector(from.draft_head->norm_scale);
}

}  // namespace

std::int64_t DeviceWeights::bytes_of(const Weights& weights, const ModelConfig& config) {
  Placement count;
  DeviceWeights unplaced;
  place(count, weights, config, unplaced);
  return static_cast<std::int64_t>(count.bytes());
}

Result<DeviceWeights> DeviceWeights::copy_of(const Weights& weights, const ModelConfig& config) {
  if (config.linear.gate == GateKind::kda && config.count(LayerKind::linear) > 0) {
    return refuse("model_type", config.model_type,
                  "a model with gated delta layers on cuda; Kimi Delta Attention runs on the cpu");
  }
  auto memory = DeviceBuffer::make(static_cast<std::size_t>(bytes_of(weights, config)));
  if (!memory) return memory.error();
  DeviceWeights placed;
  placed.memory_ = std::move(*memory);
  Placement copying(placed.memory_.as<std::byte>());
  place(copying, weights, config, placed);
  REPLAYSSM_TRY(copying.status());
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaDeviceSynchronize()));
  return placed;
}

}  // namespace replayssm::cuda
