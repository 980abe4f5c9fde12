#include "model/kimi_config.h"

#include <algorithm>
#include <numeric>

namespace replayssm {
namespace {

constexpr IntRange kHeads{1, 1024};
constexpr IntRange kLayers{0, 1024};
constexpr IntRange kWidth{0, 1 << 18};

Result<Fields> linear_config(const Fields& fields) {
  if (!fields.has("linear_attn_config")) {
    return Error{
        fmt::format("{}: missing; expected an object with head_dim, num_heads and "
                    "short_conv_kernel_size",
                    fields.name("linear_attn_config"))};
  }
  return fields.object("linear_attn_config");
}

Status refuse_unbuilt(const Fields& fields, int layers) {
  int dense = 1;
  REPLAYSSM_TRY(fields.integer("first_k_dense_replace", kLayers, dense));
  if (dense < layers) {
    return refuse(
        fields.name("first_k_dense_replace"), dense,
        fmt::format("num_hidden_layers ({}): every layer dense. Experts are not built", layers));
  }
  for (const char* key : {"attn_res_block_size", "num_nextn_predict_layers"}) {
    int size = 0;
    REPLAYSSM_TRY(fields.integer(key, kWidth, size));
    if (size != 0) return fields.refuse_field(key, "absent or 0");
  }
  return {};
}

}  // namespace

Status read_kda_heads(const Fields& fields, HeadShape& linear) {
  const auto config = linear_config(fields);
  if (!config) return config.error();
  linear.gate = GateKind::kda;
  REPLAYSSM_TRY(config->integer("num_heads", kHeads, linear.value_heads, Presence::required));
  linear.key_heads = linear.value_heads;
  int dim = kKeyDim;
  REPLAYSSM_TRY(config->integer("head_dim", {kKeyDim, kKeyDim}, dim));
  int taps = kConvWidth;
  return config->integer("short_conv_kernel_size", {kConvWidth, kConvWidth}, taps);
}

Status read_kimi_layers(const Fields& fields, int count, std::vector<LayerKind>& layers) {
  const auto config = linear_config(fields);
  if (!config) return config.error();
  REPLAYSSM_TRY(refuse_unbuilt(fields, count));
  std::vector<int> linear;
  std::vector<int> full;
  REPLAYSSM_TRY(config->integers("kda_layers", {1, count}, linear));
  REPLAYSSM_TRY(config->integers("full_attn_layers", {1, count}, full));
  if (!full.empty()) {
    return config->refuse_field("full_attn_layers",
                                "an empty list: multi-head latent attention is not built");
  }
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 1);
  std::sort(linear.begin(), linear.end());
  if (linear != all) {
    return config->refuse_field("kda_layers", fmt::format("every layer, 1 to {}, once", count));
  }
  layers.assign(all.size(), LayerKind::linear);
  return {};
}

}  // namespace replayssm
