#include "model/config_fields.h"

#include <algorithm>
#include <string>

namespace replayssm {

Status refuse_unsupported(const Fields& fields) {
  bool bias = false;
  REPLAYSSM_TRY(fields.boolean("attention_bias", bias));
  if (bias) return fields.refuse_field("attention_bias", "false");

  std::string activation = "silu";
  REPLAYSSM_TRY(fields.text("hidden_act", activation));
  if (activation != "silu") return fields.refuse_field("hidden_act", "silu");

  std::string gate = "silu";
  REPLAYSSM_TRY(fields.text("output_gate_type", gate));
  if (gate != "silu" && gate != "swish") {
    return fields.refuse_field("output_gate_type", "absent, silu or swish");
  }
  return {};
}

Status read_attention(const Fields& text, AttentionShape& attention) {
  REPLAYSSM_TRY(text.integer("num_attention_heads", kHeads, attention.heads, Presence::required));
  REPLAYSSM_TRY(
      text.integer("num_key_value_heads", kHeads, attention.kv_heads, Presence::required));
  REPLAYSSM_TRY(text.integer("head_dim", kHeadDim, attention.head_dim));
  REPLAYSSM_TRY(text.boolean("attn_output_gate", attention.output_gate));
  if (attention.heads % attention.kv_heads != 0) {
    return text.refuse_field("num_key_value_heads",
                             fmt::format("a divisor of num_attention_heads ({})", attention.heads));
  }
  if (attention.head_dim % 2 != 0) return text.refuse_field("head_dim", "an even number");
  return {};
}

Status read_type(const Fields& fields, std::string_view key, std::initializer_list<DType> accepted,
                 std::string_view accepted_text, DType& out) {
  std::string name;
  REPLAYSSM_TRY(fields.text(key, name));
  if (name.empty() && !fields.has(key)) return {};
  const auto type = dtype_named(name);
  if (!type || std::find(accepted.begin(), accepted.end(), *type) == accepted.end()) {
    return fields.refuse_field(key, accepted_text);
  }
  out = *type;
  return {};
}

Status read_weight_type(const Fields& fields, DType& out) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    REPLAYSSM_TRY(read_type(fields, key, {DType::bf16, DType::f16, DType::f32},
                            "bfloat16, float16 or float32", out));
  }
  return {};
}

}  // namespace replayssm
