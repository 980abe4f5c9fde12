#include "model/config.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "model/config_fields.h"
#include "model/json_file.h"
#include "model/kimi_config.h"
#include "model/rope_config.h"
#include "model/tokenizer_ids.h"

namespace replayssm {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr IntRange kVocabulary{1, 1 << 24};
constexpr IntRange kDraftLayers{0, 1024};
constexpr IntRange kExperts{0, 1 << 20};

constexpr int kFamilyHeadDim = 256;
constexpr double kFamilyRotaryFactor = 0.25;
constexpr int kFamilyInterval = 4;
constexpr int kFamilyPositions = 32768;
constexpr int kKimiPositions = 1 << 20;
constexpr double kKimiEps = 1e-5;

constexpr int kNextExperts = 512;

constexpr std::string_view kAcceptedTypes =
    "qwen3_5, qwen3_5_text, qwen3_next, kimi_linear or kda_hybrid (dense)";

Status read_model_type(const Fields& root, std::string& type, ModelFamily& family) {
  constexpr std::pair<std::string_view, ModelFamily> kFamilies[] = {
      {"qwen3_5", ModelFamily::qwen3_5},       {"qwen3_5_text", ModelFamily::qwen3_5},
      {"qwen3_next", ModelFamily::qwen3_next}, {"kimi_linear", ModelFamily::kimi_linear},
      {"kda_hybrid", ModelFamily::kda_hybrid},
  };
  REPLAYSSM_TRY(root.text("model_type", type, Presence::required));
  for (const auto& [name, named] : kFamilies) {
    if (type != name) continue;
    family = named;
    return {};
  }
  if (type == "qwen4_exp" || type == "qwen4_exp_text") {
    return root.refuse_field(
        "model_type", fmt::format("{}: qwen4_exp is a different architecture (gated residual "
                                  "streams, sparse attention, n-gram embeddings)",
                                  kAcceptedTypes));
  }
  return root.refuse_field("model_type", kAcceptedTypes);
}

Status refuse_experts(const Fields& fields) {
  for (const char* key : {"num_experts", "num_local_experts", "num_experts_per_tok"}) {
    int experts = 0;
    REPLAYSSM_TRY(fields.integer(key, kExperts, experts));
    if (experts != 0) return fields.refuse_field(key, "absent: a dense model, without experts");
  }
  return {};
}

// Qwen3-Next names experts whether layers use them or not: layer i does unless mlp_only_layers
// lists it or decoder_sparse_step does not divide i + 1.
Status refuse_layers_with_experts(const Fields& text, int layers) {
  int experts = kNextExperts;
  REPLAYSSM_TRY(text.integer("num_experts", kExperts, experts));
  if (experts == 0) return {};
  int step = 1;
  REPLAYSSM_TRY(text.integer("decoder_sparse_step", kLayers, step));
  std::vector<int> dense;
  REPLAYSSM_TRY(text.integers("mlp_only_layers", {0, kLayers.most}, dense));
  for (int i = 0; i < layers; ++i) {
    if ((i + 1) % step != 0 || std::find(dense.begin(), dense.end(), i) != dense.end()) continue;
    return refuse(text.name("num_experts"), experts,
                  fmt::format("0, or mlp_only_layers with every layer: a dense model. Layer {} "
                              "would have experts",
                              i));
  }
  return {};
}

Status read_layers(const Fields& text, std::vector<LayerKind>& layers) {
  int count = 0;
  REPLAYSSM_TRY(text.integer("num_hidden_layers", kLayers, count, Presence::required));
  if (!text.has("layer_types")) {
    int interval = kFamilyInterval;
    REPLAYSSM_TRY(text.integer("full_attention_interval", kLayers, interval));
    for (int i = 0; i < count; ++i) {
      layers.push_back((i + 1) % interval == 0 ? LayerKind::attention : LayerKind::linear);
    }
    return {};
  }
  const json& types = text.at("layer_types");
  if (!types.is_array() || types.size() != static_cast<std::size_t>(count)) {
    return text.refuse_field("layer_types",
                             fmt::format("a list of num_hidden_layers ({}) names", count));
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "linear_attention") {
      layers.push_back(LayerKind::linear);
    } else if (types[i] == "full_attention" || types[i] == "attention") {
      layers.push_back(LayerKind::attention);
    } else {
      return refuse(fmt::format("{}[{}]", text.name("layer_types"), i), describe(types[i]),
                    "linear_attention, full_attention or attention");
    }
  }
  return {};
}

// An integer field that only one value is built for.
Status require_built(const Fields& text, std::string_view key, int built) {
  int value = built;
  REPLAYSSM_TRY(text.integer(key, {built, built}, value));
  return {};
}

Status read_linear(const Fields& text, HeadShape& linear) {
  linear.gate = GateKind::gdn;
  REPLAYSSM_TRY(text.integer("linear_num_key_heads", kHeads, linear.key_heads, Presence::required));
  REPLAYSSM_TRY(
      text.integer("linear_num_value_heads", kHeads, linear.value_heads, Presence::required));
  if (linear.value_heads % linear.key_heads != 0) {
    return text.refuse_field(
        "linear_num_value_heads",
        fmt::format("a multiple of linear_num_key_heads ({})", linear.key_heads));
  }
  REPLAYSSM_TRY(require_built(text, "linear_key_head_dim", kKeyDim));
  REPLAYSSM_TRY(require_built(text, "linear_value_head_dim", kValueDim));
  return require_built(text, "linear_conv_kernel_dim", kConvWidth);
}

// bos and pad; -1 and the first id behind the vocabulary are old ways to write "none".
Status read_optional_token(const Fields& fields, std::string_view key, int rows, TokenId& out) {
  REPLAYSSM_TRY(fields.integer(key, {-1, rows}, out));
  if (out == rows) out = -1;
  return {};
}

// The context that YaRN reaches: a file may leave max_position_embeddings as it was trained.
int extended_positions(const RopeConfig& rope) {
  if (rope.kind != RopeKind::yarn) return 0;
  return static_cast<int>(
      std::min(rope.factor * rope.original_max_positions, static_cast<double>(kPositions.most)));
}

// Layers, mixers and positions of the Qwen families, and of kda_hybrid.
Status read_qwen_decoder(const Fields& text, ModelConfig& config) {
  REPLAYSSM_TRY(read_layers(text, config.layers));
  config.attention.head_dim = kFamilyHeadDim;
  REPLAYSSM_TRY(read_attention(text, config.attention));
  REPLAYSSM_TRY(config.family == ModelFamily::kda_hybrid ? read_kda_heads(text, config.linear)
                                                         : read_linear(text, config.linear));
  REPLAYSSM_TRY(text.number("rms_norm_eps", {0, 1, true}, config.rms_norm_eps));
  config.max_positions = kFamilyPositions;
  REPLAYSSM_TRY(text.integer("max_position_embeddings", kPositions, config.max_positions));
  auto rope = read_rope(text, config.attention.head_dim, config.max_positions, kFamilyRotaryFactor);
  if (!rope) return rope.error();
  config.rope = *rope;
  config.max_positions = std::max(config.max_positions, extended_positions(*rope));
  return {};
}

Status read_kimi_decoder(const Fields& text, ModelConfig& config) {
  int layers = 0;
  REPLAYSSM_TRY(text.integer("num_hidden_layers", kLayers, layers, Presence::required));
  REPLAYSSM_TRY(read_kimi_layers(text, layers, config.layers));
  REPLAYSSM_TRY(read_kda_heads(text, config.linear));
  config.zero_centred_norms = false;
  config.rms_norm_eps = kKimiEps;
  REPLAYSSM_TRY(text.number("rms_norm_eps", {0, 1, true}, config.rms_norm_eps));
  config.max_positions = kKimiPositions;
  return text.integer("model_max_length", kPositions, config.max_positions);
}

// Everything that config.json itself says.
Status read_config_json(const Fields& root, ModelConfig& config) {
  REPLAYSSM_TRY(read_model_type(root, config.model_type, config.family));
  REPLAYSSM_TRY(refuse_unsupported(root));

  Fields text = root;
  config.tensor_prefix = "model.";
  if (root.has("text_config")) {
    auto nested = root.object("text_config");
    if (!nested) return nested.error();
    text = *nested;
    config.tensor_prefix = "model.language_model.";
    if (text.has("model_type")) {
      std::string type;
      ModelFamily family;
      REPLAYSSM_TRY(read_model_type(text, type, family));
      if (family != config.family) {
        return text.refuse_field("model_type", fmt::format("the family of {}", config.model_type));
      }
    }
    REPLAYSSM_TRY(refuse_unsupported(text));
  }

  REPLAYSSM_TRY(text.integer("hidden_size", kWidth, config.hidden_size, Presence::required));
  REPLAYSSM_TRY(
      text.integer("intermediate_size", kWidth, config.intermediate_size, Presence::required));
  REPLAYSSM_TRY(text.integer("vocab_size", kVocabulary, config.vocab_rows, Presence::required));
  REPLAYSSM_TRY(config.family == ModelFamily::kimi_linear ? read_kimi_decoder(text, config)
                                                          : read_qwen_decoder(text, config));
  if (config.family == ModelFamily::qwen3_next) {
    REPLAYSSM_TRY(refuse_layers_with_experts(text, config.layer_count()));
  } else if (config.family != ModelFamily::kimi_linear) {
    for (const Fields* level : {&root, static_cast<const Fields*>(&text)}) {
      REPLAYSSM_TRY(refuse_experts(*level));
    }
  }
  REPLAYSSM_TRY(read_type(text, "mamba_ssm_dtype", {DType::f32, DType::bf16}, "float32 or bfloat16",
                          config.state_type));

  REPLAYSSM_TRY(text.integer("mtp_num_hidden_layers", kDraftLayers, config.draft_layers));
  REPLAYSSM_TRY(text.boolean("mtp_use_dedicated_embeddings", config.draft_embeddings));

  // Both levels may say these; where they differ, a head is tied if either says so, and the inner
  // level wins for the others.
  for (const Fields* level : {&root, static_cast<const Fields*>(&text)}) {
    bool tied = false;
    REPLAYSSM_TRY(level->boolean("tie_word_embeddings", tied));
    config.tied_head = config.tied_head || tied;
    REPLAYSSM_TRY(read_weight_type(*level, config.weight_type));
    REPLAYSSM_TRY(read_quantisation(*level, config.quantisation));
    REPLAYSSM_TRY(read_optional_token(*level, "bos_token_id", config.vocab_rows, config.bos));
    REPLAYSSM_TRY(read_optional_token(*level, "pad_token_id", config.vocab_rows, config.pad));
    REPLAYSSM_TRY(level->integers("eos_token_id", {0, config.vocab_rows - 1}, config.eos));
  }
  return {};
}

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error);
}

}  // namespace

int ModelConfig::count(LayerKind kind) const {
  return static_cast<int>(std::count(layers.begin(), layers.end(), kind));
}

bool ModelConfig::is_eos(TokenId token) const {
  return std::binary_search(eos.begin(), eos.end(), token);
}

Result<ModelConfig> load_config(const fs::path& directory) {
  auto root = read_json_object(directory / "config.json");
  if (!root) return root.error();
  ModelConfig config;
  REPLAYSSM_TRY(read_config_json(Fields(*root, "config.json: "), config));

  if (const fs::path file = directory / "generation_config.json"; is_there(file)) {
    auto defaults = load_generation_defaults(file, config.vocab_rows);
    if (!defaults) return defaults.error();
    config.generation = std::move(*defaults);
  }

  std::string eos_text;
  if (const fs::path file = directory / "tokenizer_config.json"; is_there(file)) {
    auto text = read_eos_text(file);
    if (!text) return text.error();
    eos_text = std::move(*text);
  }
  config.vocab_size = config.vocab_rows;
  if (const fs::path file = directory / "tokenizer.json"; is_there(file)) {
    auto ids = read_tokenizer_ids(file, eos_text);
    if (!ids) return ids.error();
    config.vocab_size = std::min(ids->size, config.vocab_rows);
    if (ids->eos && *ids->eos < config.vocab_rows) config.eos.push_back(*ids->eos);
  }

  // No single file names every id that ends a turn; see GenerationDefaults::eos.
  config.eos.insert(config.eos.end(), config.generation.eos.begin(), config.generation.eos.end());
  std::sort(config.eos.begin(), config.eos.end());
  config.eos.erase(std::unique(config.eos.begin(), config.eos.end()), config.eos.end());
  return config;
}

}  // namespace replayssm
