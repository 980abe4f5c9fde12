#include "model/block_draft_weights.h"

#include <string>
#include <string_view>
#include <utility>

#include "model/layer_weights.h"
#include "model/tensor_reader.h"

namespace replayssm {

BlockDraftWeights::BlockDraftWeights() = default;
BlockDraftWeights::~BlockDraftWeights() = default;
BlockDraftWeights::BlockDraftWeights(BlockDraftWeights&&) noexcept = default;
BlockDraftWeights& BlockDraftWeights::operator=(BlockDraftWeights&&) noexcept = default;

namespace {

// Where a file keeps what is called `name` here: the first of the spellings that it has, or the
// name itself, for the error.
std::string spelling(const TensorReader& reader, const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
      {"fc.weight", "encoder.fc.weight"}, {"hidden_norm.weight", "encoder.output_norm_enc.weight"}};
  std::vector<std::string> spellings{name, "model." + name, "logit_head." + name,
                                     "model.logit_head." + name};
  for (const auto& [plain, renamed] : kRenamed) {
    if (name != plain) continue;
    spellings.emplace_back(renamed);
    spellings.push_back("model." + std::string(renamed));
  }
  for (const std::string& each : spellings) {
    if (reader.has(each)) return each;
  }
  return name;
}

// Reads the tensors of one drafter.
class Loader {
 public:
  Loader(TensorReader& reader, const BlockDraftConfig& config)
      : reader_(reader),
        config_(config),
        hidden_(config.decoder.hidden_size),
        vocabulary_(config.decoder.vocab_rows) {}

  Status read(BlockDraftWeights& out) {
    REPLAYSSM_TRY(read_fc(out.fc));
    REPLAYSSM_TRY(vector("hidden_norm.weight", {hidden_}, out.hidden_norm_scale));
    REPLAYSSM_TRY(vector("norm.weight", {hidden_}, out.norm_scale));
    const std::string first = spelling(reader_, "layers.0.input_layernorm.weight");
    const std::string prefix = first.starts_with("model.") ? "model." : "";
    for (int i = 0; i < config_.decoder.layer_count(); ++i) {
      const std::string layer = fmt::format("layers.{}.", i);
      REPLAYSSM_TRY(read_layer(reader_, prefix + layer, LayerKind::attention, config_.decoder,
                               out.layers.emplace_back()));
      if (config_.conv_taps == 0) continue;
      REPLAYSSM_TRY(read_conv(layer + "attention_conv.", out.attention_convs.emplace_back()));
      REPLAYSSM_TRY(read_conv(layer + "mlp_conv.", out.mlp_convs.emplace_back()));
    }
    if (config_.selector_rank > 0) REPLAYSSM_TRY(read_selector(out.selector.emplace()));
    if (config_.markov != MarkovKind::none) REPLAYSSM_TRY(read_markov(out.markov.emplace()));
    const bool present = reader_.has(spelling(reader_, "confidence_head.proj.weight"));
    if (config_.confidence.value_or(present)) {
      REPLAYSSM_TRY(read_confidence(out.confidence.emplace()));
    }
    for (const char* copied : {"embed_tokens.weight", "lm_head.weight"}) {
      const std::string name = spelling(reader_, copied);
      if (reader_.has(name)) REPLAYSSM_TRY(reader_.leave_out(name, {vocabulary_, hidden_}));
    }
    out.bytes = reader_.bytes();
    return reader_.check_all_used();
  }

 private:
  Status matrix(const std::string& name, std::int64_t rows, std::int64_t cols, WeightMatrix& out) {
    return reader_.matrix(spelling(reader_, name), rows, cols, out);
  }
  Status vector(const std::string& name, std::vector<std::int64_t> shape, std::vector<float>& out) {
    return reader_.vector(spelling(reader_, name), std::move(shape), 0.0f, out);
  }

  // Its width is how many layers of the target are read and how wide they are.
  Status read_fc(WeightMatrix& out) {
    const std::int64_t features = config_.features();
    const Status read = matrix("fc.weight", hidden_, features * hidden_, out);
    if (read.ok()) return {};
    return Error{fmt::format("{}: hidden size {} from {} target layers of {}", read.error().message,
                             hidden_, features, hidden_)};
  }

  Status read_conv(const std::string& prefix, BlockConvWeights& out) {
    const std::int64_t taps = config_.conv_taps;
    REPLAYSSM_TRY(vector(prefix + "base_kernel", {2, taps, hidden_}, out.base));
    return matrix(prefix + "kernel_projection.weight", 2 * taps * (hidden_ / config_.conv_group),
                  hidden_, out.projection);
  }

  Status read_selector(CandidateSelectorWeights& out) {
    const std::string prefix = "candidate_selector.";
    const std::int64_t rank = config_.selector_rank;
    REPLAYSSM_TRY(matrix(prefix + "predecessor_codebook", vocabulary_, rank, out.predecessors));
    REPLAYSSM_TRY(matrix(prefix + "successor_codebook", vocabulary_, rank, out.successors));
    return matrix(prefix + "hidden_projection.weight", rank, hidden_, out.projection);
  }

  Status read_markov(MarkovWeights& out) {
    const std::string prefix = "markov_head.";
    const std::int64_t rank = config_.markov_rank;
    REPLAYSSM_TRY(matrix(prefix + "markov_w1.weight", vocabulary_, rank, out.embedding));
    REPLAYSSM_TRY(matrix(prefix + "markov_w2.weight", vocabulary_, rank, out.out));
    if (config_.markov == MarkovKind::vanilla) return {};
    const bool gated = config_.markov == MarkovKind::gated;
    const std::string gate = prefix + (gated ? "gate_proj." : "joint_proj.");
    const std::int64_t rows = gated ? rank : 3 * rank;
    REPLAYSSM_TRY(matrix(gate + "weight", rows, hidden_ + (gated ? rank : 2 * rank), out.gate));
    return vector(gate + "bias", {rows}, out.gate_bias);
  }

  Status read_confidence(ConfidenceWeights& out) {
    const std::string prefix = "confidence_head.proj.";
    const bool has_embedding = config_.markov != MarkovKind::none;
    const std::int64_t width = hidden_ + config_.markov_rank;
    bool with_markov = config_.confidence_with_markov.value_or(has_embedding);
    if (with_markov && !has_embedding) {
      return Error{"config.json: confidence_head_with_markov: true without a Markov head"};
    }
    // Unsaid, the weights' width decides.
    if (!config_.confidence_with_markov) {
      with_markov = with_markov && reader_.shape_of(spelling(reader_, prefix + "weight")) !=
                                       std::vector<std::int64_t>{1, hidden_};
    }
    REPLAYSSM_TRY(vector(prefix + "weight", {1, with_markov ? width : hidden_}, out.weight));
    std::vector<float> bias;
    REPLAYSSM_TRY(vector(prefix + "bias", {1}, bias));
    out.bias = bias.front();
    return {};
  }

  TensorReader& reader_;
  const BlockDraftConfig& config_;
  std::int64_t hidden_;
  std::int64_t vocabulary_;
};

}  // namespace

Result<BlockDraftWeights> load_block_draft_weights(const std::filesystem::path& directory,
                                                   const BlockDraftConfig& config) {
  auto files = CheckpointFiles::open(directory);
  if (!files) return files.error();
  BlockDraftWeights weights;
  weights.storage_ = std::make_unique<CheckpointStorage>();
  weights.storage_->files = std::move(*files);
  TensorReader reader(*weights.storage_, config.decoder.quantisation);
  REPLAYSSM_TRY(Loader(reader, config).read(weights));
  return weights;
}

}  // namespace replayssm
