#include "model/block_draft_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "model/config_fields.h"
#include "model/json_file.h"
#include "model/model.h"
#include "model/rope_config.h"

namespace replayssm {
namespace {

using nlohmann::json;

constexpr IntRange kBlock{1, 64};
constexpr IntRange kRank{0, 1 << 14};
constexpr IntRange kTaps{1, 64};
constexpr IntRange kCandidates{1, 64};
constexpr int kQwenHeadDim = 128;
constexpr int kPositionsByDefault = 32768;
constexpr double kMostScale = 1e9;
constexpr std::string_view kAcceptedClasses =
    "DFlashDraftModel, DFlash2DraftModel, Qwen3DSparkModel or DSparkDraftModel";

// Where the fields of a file may be.
struct Levels {
  Fields root;
  Fields decoder;  // of the decoder layers; the root, but in speculators' files
  std::optional<Fields> dflash;
  std::optional<Fields> dspark;
};

struct Place {
  const Fields* level = nullptr;  // null: the file has no such level
  std::string_view key;
};

const Fields* level_of(const std::optional<Fields>& level) { return level ? &*level : nullptr; }

// The field from whichever places have it; they must agree.
template <class T, class Read>
Status read_any(std::initializer_list<Place> places, Read&& read, std::optional<T>& out) {
  std::string first;
  for (const Place& place : places) {
    if (place.level == nullptr || !place.level->has(place.key)) continue;
    T value{};
    REPLAYSSM_TRY(read(*place.level, place.key, value));
    if (out && *out != value) {
      return place.level->refuse_field(place.key, fmt::format("the value of {}", first));
    }
    if (!out) first = place.level->name(place.key);
    out = std::move(value);
  }
  return {};
}

auto integer_reader(IntRange range) {
  return [range](const Fields& fields, std::string_view key, int& out) {
    return fields.integer(key, range, out);
  };
}

auto number_reader(NumberRange range) {
  return [range](const Fields& fields, std::string_view key, double& out) {
    return fields.number(key, range, out);
  };
}

Status read_boolean(const Fields& fields, std::string_view key, bool& out) {
  return fields.boolean(key, out);
}

Error missing(std::string_view field, std::string_view accepted) {
  return Error{fmt::format("config.json: {}: missing; expected {}", field, accepted)};
}

// The class of the drafter, and with it which rows predict what.
struct Dialect {
  std::string name;
  bool from_anchor = false;
  bool dspark_fields = false;  // Markov and confidence heads may be described
};

Result<Dialect> speculators_dialect(const Fields& root) {
  Dialect dialect;
  REPLAYSSM_TRY(root.text("speculators_model_type", dialect.name));
  if (dialect.name != "dflash" && dialect.name != "dspark") {
    return root.refuse_field("speculators_model_type",
                             "dflash or dspark; EAGLE-3 and other drafters are not built");
  }
  dialect.dspark_fields = true;
  dialect.from_anchor = dialect.name == "dspark";
  REPLAYSSM_TRY(root.boolean("sample_from_anchor", dialect.from_anchor));
  return dialect;
}

Result<Dialect> dialect_of(const Levels& levels) {
  const Fields& root = levels.root;
  if (root.has("speculators_model_type")) return speculators_dialect(root);
  const json& classes = root.at("architectures");
  if (!classes.is_array() || classes.size() != 1 || !classes[0].is_string()) {
    return root.refuse_field("architectures", fmt::format("a list of one of {}", kAcceptedClasses));
  }
  Dialect dialect;
  dialect.name = classes[0].get<std::string>();
  if (dialect.name.find("Eagle") != std::string::npos ||
      dialect.name.find("EAGLE") != std::string::npos) {
    return refuse("config.json: architectures", dialect.name,
                  fmt::format("{}; EAGLE-3 drafters are not built", kAcceptedClasses));
  }
  std::string projector;
  if (levels.dflash) REPLAYSSM_TRY(levels.dflash->text("projector_type", projector));
  const bool dspark_projector = projector == "dspark";
  if (dialect.name == "DFlashDraftModel" || dialect.name == "DFlash2DraftModel") {
    dialect.from_anchor = dialect.dspark_fields = dspark_projector;
  } else if (dialect.name == "Qwen3DSparkModel" || dialect.name == "DSparkDraftModel") {
    if (!projector.empty() && !dspark_projector) {
      return levels.dflash->refuse_field("projector_type", "dspark or absent");
    }
    dialect.from_anchor = dialect.dspark_fields = true;
  } else {
    return refuse("config.json: architectures", dialect.name, kAcceptedClasses);
  }
  return dialect;
}

// Variants that would change the mathematics.
Status refuse_variants(const Fields& fields) {
  for (const char* key : {"aux_hidden_norms", "norm_before_fc", "g_proj", "attn_output_gate"}) {
    bool used = false;
    REPLAYSSM_TRY(fields.boolean(key, used));
    if (used) return fields.refuse_field(key, "false: this variant is not built");
  }
  for (const char* key : {"logits_scaling", "embedding_multiplier", "residual_multiplier",
                          "attention_multiplier", "mup_width_multiplier"}) {
    double factor = 1.0;
    REPLAYSSM_TRY(fields.number(key, {0, kMostScale}, factor));
    if (factor != 1.0) return fields.refuse_field(key, "1: scaled heads are not built");
  }
  return {};
}

Status read_vocabulary(const Levels& levels, const ModelConfig& target, ModelConfig& decoder) {
  const int rows = target.vocab_rows;
  for (const Fields* level : {&levels.root, &levels.decoder}) {
    for (const char* key : {"vocab_size", "draft_vocab_size"}) {
      int size = rows;
      REPLAYSSM_TRY(level->integer(key, {1, 1 << 24}, size));
      if (size != rows) {
        return level->refuse_field(key, fmt::format("the target's vocabulary of {}", rows));
      }
    }
  }
  decoder.vocab_rows = rows;
  decoder.vocab_size = target.vocab_size;
  return {};
}

Status read_decoder(const Levels& levels, const ModelConfig& target, ModelConfig& decoder) {
  const Fields& fields = levels.decoder;
  for (const Fields* level : {&levels.root, &levels.decoder}) {
    REPLAYSSM_TRY(refuse_unsupported(*level));
    REPLAYSSM_TRY(refuse_variants(*level));
    REPLAYSSM_TRY(read_weight_type(*level, decoder.weight_type));
    REPLAYSSM_TRY(read_quantisation(*level, decoder.quantisation));
  }
  REPLAYSSM_TRY(fields.integer("hidden_size", kWidth, decoder.hidden_size, Presence::required));
  if (decoder.hidden_size != target.hidden_size) {
    return fields.refuse_field("hidden_size", fmt::format("the target's {}", target.hidden_size));
  }
  REPLAYSSM_TRY(
      fields.integer("intermediate_size", kWidth, decoder.intermediate_size, Presence::required));
  int layers = 0;
  REPLAYSSM_TRY(fields.integer("num_hidden_layers", kLayers, layers, Presence::required));
  decoder.layers.assign(static_cast<std::size_t>(layers), LayerKind::attention);
  decoder.attention.output_gate = false;
  decoder.attention.head_dim = kQwenHeadDim;
  REPLAYSSM_TRY(read_attention(fields, decoder.attention));
  REPLAYSSM_TRY(fields.number("rms_norm_eps", {0, 1, true}, decoder.rms_norm_eps));
  decoder.max_positions = kPositionsByDefault;
  REPLAYSSM_TRY(fields.integer("max_position_embeddings", kPositions, decoder.max_positions));
  const auto rope = read_rope(fields, decoder.attention.head_dim, decoder.max_positions, 1.0);
  if (!rope) return rope.error();
  decoder.rope = *rope;
  if (decoder.rope.rotary_dim != decoder.attention.head_dim) {
    return refuse("config.json: partial_rotary_factor",
                  static_cast<double>(decoder.rope.rotary_dim) / decoder.attention.head_dim,
                  "1 or absent: drafters rotate whole heads");
  }
  decoder.zero_centred_norms = false;
  decoder.linear = {};
  decoder.linear.key_heads = decoder.linear.value_heads = 0;
  return read_vocabulary(levels, target, decoder);
}

// full_attention or sliding_attention for each layer. Full layers see the whole block, sliding ones
// the rows up to their own, unless a field says otherwise for all of them.
Status read_attention_kinds(const Levels& levels, BlockDraftConfig& config) {
  const Fields& fields = levels.decoder;
  const auto layers = static_cast<std::size_t>(config.decoder.layer_count());
  std::optional<bool> causal;
  REPLAYSSM_TRY(read_any<bool>({{&levels.root, "is_causal"},
                                {&levels.decoder, "is_causal"},
                                {level_of(levels.dflash), "is_causal"}},
                               read_boolean, causal));
  bool sliding_sees_block = false;
  REPLAYSSM_TRY(levels.root.boolean("sliding_window_non_causal", sliding_sees_block));
  config.attention.assign(layers, {causal.value_or(false), 0});
  if (!fields.has("layer_types")) return {};
  const json& types = fields.at("layer_types");
  if (!types.is_array() || types.size() != layers) {
    return fields.refuse_field("layer_types",
                               fmt::format("a list of num_hidden_layers ({}) names", layers));
  }
  for (std::size_t i = 0; i < layers; ++i) {
    if (types[i] == "full_attention") continue;
    if (types[i] != "sliding_attention") {
      return refuse(fmt::format("{}[{}]", fields.name("layer_types"), i), describe(types[i]),
                    "full_attention or sliding_attention");
    }
    REPLAYSSM_TRY(fields.integer("sliding_window", kPositions, config.attention[i].window,
                                 Presence::required));
    config.attention[i].causal = causal.value_or(!sliding_sees_block);
  }
  return {};
}

// Where none are named: as many as there are draft layers, evenly from the second to the third
// last.
std::vector<int> layers_by_default(int target_layers, int count) {
  if (count == 1) return {target_layers / 2};
  std::vector<int> layers;
  for (int i = 0; i < count; ++i) {
    const double place = 1.0 + static_cast<double>(i) * (target_layers - 4) / (count - 1);
    layers.push_back(static_cast<int>(std::nearbyint(place)));  // half to even
  }
  return layers;
}

Status read_target_layers(const Levels& levels, const ModelConfig& target,
                          BlockDraftConfig& config) {
  const int count = target.layer_count();
  for (const Place& place : {Place{&levels.root, "num_target_layers"},
                             Place{level_of(levels.dflash), "num_target_layers"}}) {
    if (place.level == nullptr) continue;
    int layers = count;
    REPLAYSSM_TRY(place.level->integer(place.key, kLayers, layers));
    if (layers != count) {
      return place.level->refuse_field(place.key, fmt::format("the target's {}", count));
    }
  }
  std::optional<std::vector<int>> layers;
  // The last layer's output is final-normed in the lists of hidden states that drafters are trained
  // on; nothing says which of the two a file with that layer means.
  const IntRange range{kTapEmbedding, count - 2};
  const auto read = [range](const Fields& fields, std::string_view key, std::vector<int>& out) {
    return fields.integers(key, range, out);
  };
  REPLAYSSM_TRY(read_any<std::vector<int>>({{level_of(levels.dflash), "target_layer_ids"},
                                            {&levels.root, "target_layer_ids"},
                                            {level_of(levels.dspark), "target_layer_ids"},
                                            {&levels.root, "dspark_target_layer_ids"},
                                            {&levels.root, "aux_hidden_state_layer_ids"}},
                                           read, layers));
  if (!layers) layers = layers_by_default(count, config.decoder.layer_count());
  for (std::size_t i = 0; i < layers->size(); ++i) {
    const int layer = (*layers)[i];
    if (layer < range.least || layer > range.most || (i > 0 && layer <= (*layers)[i - 1])) {
      return refuse("config.json: target_layer_ids", fmt::format("{}", fmt::join(*layers, ", ")),
                    fmt::format("ascending layers from {} to {}", range.least, range.most));
    }
  }
  if (layers->empty()) return missing("target_layer_ids", "at least one layer of the target");
  config.target_layers = std::move(*layers);
  return {};
}

Status read_block(const Levels& levels, const ModelConfig& target, BlockDraftConfig& config) {
  std::optional<int> block;
  REPLAYSSM_TRY(read_any<int>({{level_of(levels.dflash), "block_size"},
                               {&levels.root, "block_size"},
                               {level_of(levels.dspark), "block_size"},
                               {&levels.root, "dspark_block_size"}},
                              integer_reader(kBlock), block));
  if (!block) return missing("block_size", "the rows of a block");
  config.block = *block;
  if (config.drafts() < 1) {
    return refuse("config.json: block_size", config.block, "at least 2: the first row drafts not");
  }
  std::optional<int> mask;
  REPLAYSSM_TRY(read_any<int>({{level_of(levels.dflash), "mask_token_id"},
                               {&levels.root, "mask_token_id"},
                               {level_of(levels.dspark), "mask_token_id"},
                               {&levels.root, "dspark_noise_token_id"}},
                              integer_reader({0, target.vocab_rows - 1}), mask));
  if (!mask && levels.root.has("mask_token")) {
    return Error{"config.json: mask_token: a name alone; expected mask_token_id beside it"};
  }
  if (!mask) return missing("mask_token_id", "an id of the target's vocabulary");
  config.mask = *mask;
  return {};
}

// Both fields, or neither (0 and 0).
Status read_pair(const Levels& levels, std::pair<std::string_view, IntRange> first,
                 std::pair<std::string_view, IntRange> second, int& first_out, int& second_out) {
  std::array<std::optional<int>, 2> values;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& [key, range] = i == 0 ? first : second;
    REPLAYSSM_TRY(read_any<int>({{level_of(levels.dflash), key}, {&levels.root, key}},
                                integer_reader(range), values[i]));
  }
  if (values[0].has_value() != values[1].has_value()) {
    return missing(values[0] ? second.first : first.first,
                   fmt::format("{} and {}, or neither", first.first, second.first));
  }
  first_out = values[0].value_or(0);
  second_out = values[1].value_or(0);
  return {};
}

Status read_dflash2(const Levels& levels, BlockDraftConfig& config) {
  const int width = config.decoder.hidden_size;
  REPLAYSSM_TRY(read_pair(levels, {"conv_kernel_size", kTaps}, {"conv_group_size", {1, width}},
                          config.conv_taps, config.conv_group));
  if (config.conv_group != 0 && width % config.conv_group != 0) {
    return refuse("config.json: conv_group_size", config.conv_group,
                  fmt::format("a divisor of hidden_size ({})", width));
  }
  REPLAYSSM_TRY(
      read_pair(levels, {"selector_rank", {1, kRank.most}},
                {"selector_top_k",
                 {1, std::min(static_cast<int>(kCandidates.most), config.decoder.vocab_size)}},
                config.selector_rank, config.selector_top));
  const std::tuple<const char*, NumberRange, double*> scales[] = {
      {"input_embedding_scale", {0, kMostScale, true}, &config.embedding_scale},
      {"output_multiplier", {0, kMostScale, true}, &config.output_multiplier},
      {"final_logit_softcapping", {0, kMostScale}, &config.softcap}};
  for (const auto& [key, range, out] : scales) {
    std::optional<double> value;
    REPLAYSSM_TRY(read_any<double>({{level_of(levels.dflash), key}, {&levels.root, key}},
                                   number_reader(range), value));
    *out = value.value_or(*out);
  }
  return {};
}

Status read_markov(const Levels& levels, BlockDraftConfig& config) {
  std::optional<int> rank;
  REPLAYSSM_TRY(read_any<int>({{&levels.root, "markov_rank"},
                               {level_of(levels.dspark), "markov_rank"},
                               {level_of(levels.dflash), "markov_rank"},
                               {&levels.root, "dspark_markov_rank"}},
                              integer_reader(kRank), rank));
  std::optional<std::string> kind;
  REPLAYSSM_TRY(read_any<std::string>(
      {{&levels.root, "markov_head_type"},
       {level_of(levels.dspark), "markov_head_type"},
       {level_of(levels.dflash), "markov_head_type"}},
      [](const Fields& fields, std::string_view key, std::string& out) {
        return fields.text(key, out);
      },
      kind));
  config.markov_rank = rank.value_or(0);
  if (config.markov_rank == 0) return {};
  constexpr std::pair<std::string_view, MarkovKind> kKinds[] = {
      {"vanilla", MarkovKind::vanilla}, {"gated", MarkovKind::gated}, {"rnn", MarkovKind::rnn}};
  for (const auto& [name, of_name] : kKinds) {
    if (kind.value_or("vanilla") == name) config.markov = of_name;
  }
  if (config.markov == MarkovKind::none) {
    return refuse("config.json: markov_head_type", *kind, "vanilla, gated or rnn");
  }
  return {};
}

Status read_confidence(const Levels& levels, BlockDraftConfig& config) {
  const auto boolean = [&](std::string_view key, std::optional<bool>& out) {
    return read_any<bool>(
        {{&levels.root, key}, {level_of(levels.dspark), key}, {level_of(levels.dflash), key}},
        read_boolean, out);
  };
  REPLAYSSM_TRY(boolean("enable_confidence_head", config.confidence));
  REPLAYSSM_TRY(boolean("confidence_head_with_markov", config.confidence_with_markov));
  std::optional<double> alpha;
  REPLAYSSM_TRY(read_any<double>({{&levels.root, "confidence_head_alpha"},
                                  {level_of(levels.dspark), "confidence_head_alpha"},
                                  {level_of(levels.dflash), "confidence_head_alpha"}},
                                 number_reader({0, kMostScale}), alpha));
  if (!config.confidence && alpha && *alpha > 0) config.confidence = true;
  constexpr std::string_view kTemperatures = "confidence_temperatures";
  if (!levels.root.has(kTemperatures)) return {};
  const json& list = levels.root.at(kTemperatures);
  const bool fits = list.is_array() && list.size() == static_cast<std::size_t>(config.drafts());
  for (std::size_t i = 0; fits && i < list.size(); ++i) {
    if (!list[i].is_number() || list[i].get<double>() <= 0) break;
    config.confidence_temperatures.push_back(list[i].get<double>());
  }
  if (!fits || config.confidence_temperatures.size() != list.size()) {
    return levels.root.refuse_field(
        kTemperatures, fmt::format("{} numbers above 0, one for each draft", config.drafts()));
  }
  return {};
}

// A file that describes these without being of a class that has them is not what it says it is.
Status refuse_dspark_fields(const BlockDraftConfig& config, const std::string& name) {
  if (config.markov_rank > 0) {
    return refuse("config.json: markov_rank", config.markov_rank, fmt::format("0 with {}", name));
  }
  if (config.confidence.value_or(false)) {
    return refuse("config.json: enable_confidence_head", "true",
                  fmt::format("false with {}", name));
  }
  return {};
}

Result<Levels> levels_of(const json& file) {
  Levels levels{Fields(file, "config.json: "), Fields(file, "config.json: "), {}, {}};
  const std::pair<const char*, std::optional<Fields>*> nested[] = {
      {"dflash_config", &levels.dflash}, {"dspark_config", &levels.dspark}};
  for (const auto& [key, out] : nested) {
    if (!levels.root.has(key)) continue;
    auto object = levels.root.object(key);
    if (!object) return object.error();
    *out = std::move(*object);
  }
  if (levels.root.has("transformer_layer_config")) {
    auto object = levels.root.object("transformer_layer_config");
    if (!object) return object.error();
    levels.decoder = std::move(*object);
  }
  return levels;
}

}  // namespace

Result<BlockDraftConfig> load_block_draft_config(const std::filesystem::path& directory,
                                                 const ModelConfig& target) {
  const auto file = read_json_object(directory / "config.json");
  if (!file) return file.error();
  const auto levels = levels_of(*file);
  if (!levels) return levels.error();
  const auto dialect = dialect_of(*levels);
  if (!dialect) return dialect.error();
  BlockDraftConfig config;
  config.decoder.model_type = dialect->name;
  config.from_anchor = dialect->from_anchor;
  REPLAYSSM_TRY(read_decoder(*levels, target, config.decoder));
  REPLAYSSM_TRY(read_attention_kinds(*levels, config));
  REPLAYSSM_TRY(read_target_layers(*levels, target, config));
  REPLAYSSM_TRY(read_block(*levels, target, config));
  REPLAYSSM_TRY(read_dflash2(*levels, config));
  REPLAYSSM_TRY(read_markov(*levels, config));
  REPLAYSSM_TRY(read_confidence(*levels, config));
  if (!dialect->dspark_fields) REPLAYSSM_TRY(refuse_dspark_fields(config, dialect->name));
  return config;
}

}  // namespace replayssm
