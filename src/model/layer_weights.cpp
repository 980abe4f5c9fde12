#include "model/layer_weights.h"

#include "model/kimi_weights.h"
#include "model/qwen3_next_weights.h"

namespace replayssm {
namespace {

constexpr float kPlain = 0.0f;

Status read_gdn(TensorReader& reader, const std::string& prefix, const ModelConfig& config,
                GdnWeights& out) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t channels = config.linear.channels();
  const std::int64_t heads = config.linear.value_heads;
  const std::int64_t values = heads * kValueDim;
  if (config.family == ModelFamily::qwen3_next) {
    REPLAYSSM_TRY(read_fused_projections(reader, prefix, config, out));
  } else {
    REPLAYSSM_TRY(reader.matrix(prefix + "in_proj_qkv.weight", channels, hidden, out.qkv));
    REPLAYSSM_TRY(reader.matrix(prefix + "in_proj_z.weight", values, hidden, out.z));
    REPLAYSSM_TRY(reader.matrix(prefix + "in_proj_b.weight", heads, hidden, out.b));
    REPLAYSSM_TRY(reader.matrix(prefix + "in_proj_a.weight", heads, hidden, out.a));
  }
  REPLAYSSM_TRY(reader.matrix(prefix + "out_proj.weight", hidden, values, out.out));
  REPLAYSSM_TRY(
      reader.vector(prefix + "conv1d.weight", {channels, 1, kConvWidth}, kPlain, out.conv));
  REPLAYSSM_TRY(reader.vector(prefix + "A_log", {heads}, kPlain, out.a_log));
  REPLAYSSM_TRY(reader.vector(prefix + "dt_bias", {heads}, kPlain, out.dt_bias));
  return reader.vector(prefix + "norm.weight", {kValueDim}, kPlain, out.norm_scale);
}

Status read_attention(TensorReader& reader, const std::string& prefix, const ModelConfig& config,
                      AttentionWeights& out) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t dim = config.attention.head_dim;
  const std::int64_t queries = config.attention.heads * dim;
  const std::int64_t keys = config.attention.kv_heads * dim;
  const std::int64_t query_rows = config.attention.output_gate ? 2 * queries : queries;
  REPLAYSSM_TRY(reader.matrix(prefix + "q_proj.weight", query_rows, hidden, out.q));
  REPLAYSSM_TRY(reader.matrix(prefix + "k_proj.weight", keys, hidden, out.k));
  REPLAYSSM_TRY(reader.matrix(prefix + "v_proj.weight", keys, hidden, out.v));
  REPLAYSSM_TRY(reader.matrix(prefix + "o_proj.weight", hidden, queries, out.out));
  REPLAYSSM_TRY(
      reader.vector(prefix + "q_norm.weight", {dim}, norm_offset(config), out.q_norm_scale));
  return reader.vector(prefix + "k_norm.weight", {dim}, norm_offset(config), out.k_norm_scale);
}

}  // namespace

float norm_offset(const ModelConfig& config) { return config.zero_centred_norms ? 1.0f : kPlain; }

Status read_layer(TensorReader& reader, const std::string& prefix, LayerKind kind,
                  const ModelConfig& config, LayerWeights& out) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = config.intermediate_size;
  REPLAYSSM_TRY(reader.vector(prefix + "input_layernorm.weight", {hidden}, norm_offset(config),
                              out.mixer_norm_scale));
  if (kind == LayerKind::linear && config.linear.gate == GateKind::kda) {
    const char* mixer = config.family == ModelFamily::kimi_linear ? "self_attn." : "linear_attn.";
    REPLAYSSM_TRY(read_kda(reader, prefix + mixer, config, out.mixer.emplace<KdaWeights>()));
  } else if (kind == LayerKind::linear) {
    REPLAYSSM_TRY(
        read_gdn(reader, prefix + "linear_attn.", config, out.mixer.emplace<GdnWeights>()));
  } else {
    REPLAYSSM_TRY(read_attention(reader, prefix + "self_attn.", config,
                                 out.mixer.emplace<AttentionWeights>()));
  }
  REPLAYSSM_TRY(reader.vector(prefix + "post_attention_layernorm.weight", {hidden},
                              norm_offset(config), out.mlp_norm_scale));
  REPLAYSSM_TRY(reader.matrix(prefix + "mlp.gate_proj.weight", width, hidden, out.mlp.gate));
  REPLAYSSM_TRY(reader.matrix(prefix + "mlp.up_proj.weight", width, hidden, out.mlp.up));
  return reader.matrix(prefix + "mlp.down_proj.weight", hidden, width, out.mlp.down);
}

}  // namespace replayssm
