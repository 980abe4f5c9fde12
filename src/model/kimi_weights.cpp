#include "model/kimi_weights.h"

namespace replayssm {

Status read_kda(TensorReader& reader, const std::string& prefix, const ModelConfig& config,
                KdaWeights& out) {
  constexpr float kPlain = 0.0f;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads = config.linear.value_heads;
  const std::int64_t width = heads * kKeyDim;
  REPLAYSSM_TRY(reader.matrix(prefix + "q_proj.weight", width, hidden, out.q));
  REPLAYSSM_TRY(reader.matrix(prefix + "k_proj.weight", width, hidden, out.k));
  REPLAYSSM_TRY(reader.matrix(prefix + "v_proj.weight", width, hidden, out.v));
  REPLAYSSM_TRY(reader.matrix(prefix + "f_a_proj.weight", kKeyDim, hidden, out.forget_down));
  REPLAYSSM_TRY(reader.matrix(prefix + "f_b_proj.weight", width, kKeyDim, out.forget_up));
  REPLAYSSM_TRY(reader.matrix(prefix + "b_proj.weight", heads, hidden, out.b));
  REPLAYSSM_TRY(reader.matrix(prefix + "g_a_proj.weight", kValueDim, hidden, out.gate_down));
  REPLAYSSM_TRY(reader.matrix(prefix + "g_b_proj.weight", width, kValueDim, out.gate_up));
  REPLAYSSM_TRY(reader.matrix(prefix + "o_proj.weight", hidden, width, out.out));
  for (const char* name : {"q_conv1d", "k_conv1d", "v_conv1d"}) {
    std::vector<float> taps;
    REPLAYSSM_TRY(reader.vector(prefix + name + ".weight", {width, 1, kConvWidth}, kPlain, taps));
    out.conv.insert(out.conv.end(), taps.begin(), taps.end());
  }
  REPLAYSSM_TRY(reader.vector(prefix + "A_log", {1, 1, heads, 1}, kPlain, out.a_log));
  REPLAYSSM_TRY(reader.vector(prefix + "dt_bias", {width}, kPlain, out.dt_bias));
  return reader.vector(prefix + "o_norm.weight", {kValueDim}, kPlain, out.norm_scale);
}

}  // namespace replayssm
