#include "model/weights.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "model/checkpoint_files.h"
#include "model/layer_weights.h"
#include "model/tensor_reader.h"

namespace replayssm {

Weights::Weights() = default;
Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

void Weights::keep_embedding_and_head() {
  final_norm_scale.clear();
  layers.clear();
  draft_head.reset();
  bytes = embedding.bytes() + (head.data == embedding.data ? 0 : head.bytes());
  if (storage_ == nullptr) return;
  std::erase_if(storage_->copies, [&](const auto& copy) {
    return copy.data() != embedding.data && copy.data() != head.data;
  });
}

namespace {

constexpr std::string_view kNestedPrefix = "model.language_model.";
constexpr std::string_view kFlatPrefix = "model.";
// The vision tower, and the draft head where it is not asked for.
constexpr std::string_view kOwnedByOthers[] = {"model.visual.", "mtp."};

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
      reader.table(prefix + "embed_tokens.weight", config.vocab_rows, hidden, out.embedding));
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
                             bool with_draft_head, Float8 float8) {
  auto files = CheckpointFiles::open(directory);
  if (!files) return files.error();
  Weights weights;
  weights.storage_ = std::make_unique<CheckpointStorage>();
  weights.storage_->files = std::move(*files);
  TensorReader reader(*weights.storage_, config.quantisation, float8);
  const std::string prefix = decoder_prefix(reader, config);
  REPLAYSSM_TRY(read_body(reader, prefix, config, with_draft_head, weights));
  weights.bytes = reader.bytes();

  // A missing head is a tied one, whatever the configuration says. One that is there although the
  // configuration ties it counts where it differs, as in Hugging Face's loader.
  weights.head = weights.embedding;
  if (reader.has("lm_head.weight")) {
    WeightMatrix head;
    REPLAYSSM_TRY(reader.table("lm_head.weight", config.vocab_rows, config.hidden_size, head));
    if (!config.tied_head || !same_contents(head, weights.embedding)) {
      weights.head = head;
      weights.bytes = reader.bytes();
    }
  }
  REPLAYSSM_TRY(reader.check_all_used(kOwnedByOthers));
  return weights;
}

Result<Weights> random_weights(const ModelConfig& config, bool with_draft_head,
                               DummyMatrices matrices, Float8 float8) {
  Weights weights;
  weights.storage_ = std::make_unique<CheckpointStorage>();
  weights.storage_->shapes_only = matrices == DummyMatrices::shapes_only;
  TensorReader reader(*weights.storage_, config.quantisation, float8);
  REPLAYSSM_TRY(read_body(reader, config.tensor_prefix, config, with_draft_head, weights));
  weights.head = weights.embedding;
  if (!config.tied_head) {
    REPLAYSSM_TRY(
        reader.table("lm_head.weight", config.vocab_rows, config.hidden_size, weights.head));
  }
  weights.bytes = reader.bytes();
  return weights;
}

}  // namespace replayssm
