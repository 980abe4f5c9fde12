#include "model/weights.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "core/aligned_buffer.h"
#include "model/checkpoint_files.h"
#include "model/kimi_weights.h"
#include "model/qwen3_next_weights.h"
#include "model/tensor_reader.h"

namespace replayssm {

struct Weights::Storage {
  std::optional<CheckpointFiles> files;          // none: all weights are copies
  std::vector<AlignedBuffer<std::byte>> copies;  // matrices that could not stay as stored
};

Weights::Weights() = default;
Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

namespace {

constexpr std::string_view kNestedPrefix = "model.language_model.";
constexpr std::string_view kFlatPrefix = "model.";

constexpr float kPlain = 0.0f;

// What turns a stored norm weight into a scale.
float norm_offset(const ModelConfig& config) { return config.zero_centred_norms ? 1.0f : kPlain; }

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

Status read_draft_head(TensorReader& reader, const ModelConfig& config, MtpWeights& out) {
  const std::int64_t hidden = config.hidden_size;
  REPLAYSSM_TRY(reader.matrix("mtp.fc.weight", hidden, 2 * hidden, out.fc));
  REPLAYSSM_TRY(reader.vector("mtp.pre_fc_norm_embedding.weight", {hidden}, norm_offset(config),
                              out.embedding_norm_scale));
  REPLAYSSM_TRY(reader.vector("mtp.pre_fc_norm_hidden.weight", {hidden}, norm_offset(config),
                              out.hidden_norm_scale));
  REPLAYSSM_TRY(read_layer(reader, "mtp.layers.0.", LayerKind::attention, config, out.layer));
  return reader.vector("mtp.norm.weight", {hidden}, norm_offset(config), out.norm_scale);
}

// All but the output head.
Status read_body(TensorReader& reader, const std::string& prefix, const ModelConfig& config,
                 bool with_draft_head, Weights& out) {
  const std::int64_t hidden = config.hidden_size;
  REPLAYSSM_TRY(
      reader.matrix(prefix + "embed_tokens.weight", config.vocab_rows, hidden, out.embedding));
  for (int i = 0; i < config.layer_count(); ++i) {
    REPLAYSSM_TRY(read_layer(reader, fmt::format("{}layers.{}.", prefix, i), config.layers[i],
                             config, out.layers.emplace_back()));
  }
  REPLAYSSM_TRY(
      reader.vector(prefix + "norm.weight", {hidden}, norm_offset(config), out.final_norm_scale));
  if (!with_draft_head) return {};
  return read_draft_head(reader, config, out.draft_head.emplace());
}

// The prefix that config.json suggests, unless the embedding is only found under the other one:
// text-only copies of nested checkpoints come with either.
std::string decoder_prefix(const TensorReader& reader, const ModelConfig& config) {
  for (const std::string_view prefix : {kNestedPrefix, kFlatPrefix}) {
    const std::string other(prefix);
    if (other != config.tensor_prefix && reader.has(other + "embed_tokens.weight") &&
        !reader.has(config.tensor_prefix + "embed_tokens.weight")) {
      return other;
    }
  }
  return config.tensor_prefix;
}

bool same_contents(const WeightMatrix& a, const WeightMatrix& b) {
  return a.type == b.type && a.bytes() == b.bytes() &&
         std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes())) == 0;
}

}  // namespace

bool has_draft_head(const std::filesystem::path& directory) {
  const auto files = CheckpointFiles::open(directory);
  return files && files->find("mtp.fc.weight") != nullptr;
}

Result<Weights> load_weights(const std::filesystem::path& directory, const ModelConfig& config,
                             bool with_draft_head) {
  auto files = CheckpointFiles::open(directory);
  if (!files) return files.error();
  Weights weights;
  weights.storage_ = std::make_unique<Weights::Storage>();
  const CheckpointFiles& opened = weights.storage_->files.emplace(std::move(*files));
  TensorReader reader(opened, config.quantisation, weights.storage_->copies);
  const std::string prefix = decoder_prefix(reader, config);
  REPLAYSSM_TRY(read_body(reader, prefix, config, with_draft_head, weights));
  weights.bytes = reader.bytes();

  // A missing head is a tied one, whatever the configuration says. One that is there although the
  // configuration ties it counts where it differs, as in Hugging Face's loader.
  weights.head = weights.embedding;
  if (reader.has("lm_head.weight")) {
    WeightMatrix head;
    REPLAYSSM_TRY(reader.matrix("lm_head.weight", config.vocab_rows, config.hidden_size, head));
    if (!config.tied_head || !same_contents(head, weights.embedding)) {
      weights.head = head;
      weights.bytes = reader.bytes();
    }
  }
  REPLAYSSM_TRY(reader.check_all_used());
  return weights;
}

Result<Weights> random_weights(const ModelConfig& config, bool with_draft_head) {
  Weights weights;
  weights.storage_ = std::make_unique<Weights::Storage>();
  TensorReader reader(weights.storage_->copies);
  REPLAYSSM_TRY(read_body(reader, config.tensor_prefix, config, with_draft_head, weights));
  weights.head = weights.embedding;
  if (!config.tied_head) {
    REPLAYSSM_TRY(
        reader.matrix("lm_head.weight", config.vocab_rows, config.hidden_size, weights.head));
  }
  weights.bytes = reader.bytes();
  return weights;
}

}  // namespace replayssm
