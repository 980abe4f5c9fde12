#include "engine/memory_needs.h"

#include <algorithm>

#include "engine/machine_memory.h"
#include "model/decoder.h"
#include "model/float8.h"
#include "spec/block_drafter.h"
#include "spec/mtp_drafter.h"
#include "spec/ngram_drafter.h"

namespace replayssm {
namespace {

// A decoder layer's tensors, in elements: matrices as stored, vectors widened to float32. Gates are
// the small matrices that checkpoints in float8 leave in bf16.
struct Elements {
  std::int64_t matrices = 0;
  std::int64_t vectors = 0;
  std::int64_t gates = 0;

  Elements& operator+=(const Elements& other) {
    matrices += other.matrices;
    vectors += other.vectors;
    gates += other.gates;
    return *this;
  }
};

Elements mlp_and_norms(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size;
  return {3 * hidden * c.intermediate_size, 2 * hidden};
}

Elements attention(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size;
  const std::int64_t queries = std::int64_t{c.attention.heads} * c.attention.head_dim;
  const std::int64_t keys = std::int64_t{c.attention.kv_heads} * c.attention.head_dim;
  const std::int64_t query_rows = queries * (c.attention.output_gate ? 2 : 1);
  return {hidden * (query_rows + 2 * keys + queries), std::int64_t{2} * c.attention.head_dim};
}

// Projections q, k, v and out, two gates through a rank of a head's width, beta.
Elements kda(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size;
  const std::int64_t width = std::int64_t{c.linear.value_heads} * kKeyDim;
  const std::int64_t rank = kKeyDim;
  return {hidden * (4 * width + 2 * rank + c.linear.value_heads) + 2 * width * rank,
          3 * width * kConvWidth + c.linear.value_heads + width + kValueDim};
}

Elements linear(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size;
  if (c.linear.gate == GateKind::kda) return kda(c);
  const std::int64_t channels = c.linear.channels();
  const std::int64_t values = std::int64_t{c.linear.value_heads} * kValueDim;
  return {hidden * (channels + 2 * values),
          channels * kConvWidth + std::int64_t{2} * c.linear.value_heads + kValueDim,
          hidden * 2 * c.linear.value_heads};
}

}  // namespace

SequenceLayout sequence_layout(const ModelConfig& config, const ModelOptions& options,
                               DType state_type, int page_tokens, const BlockDraftConfig* drafter) {
  SequenceLayout layout;
  layout.linear_layers = config.count(LayerKind::linear);
  layout.attention_layers = config.count(LayerKind::attention);
  layout.heads = config.linear;
  layout.kv_heads = config.attention.kv_heads;
  layout.head_dim = config.attention.head_dim;
  layout.geometry = options.geometry;
  layout.recurrence = options.recurrence;
  layout.state_type = state_type;
  layout.correction_type = state_type;
  layout.activation_type = options.activations;
  layout.page_tokens = page_tokens;
  if (options.draft_head) {
    // The first token has no hidden state before it.
    layout.draft = {1, config.attention.kv_heads, config.attention.head_dim, 1};
  } else if (drafter != nullptr) {
    const AttentionShape& shape = drafter->decoder.attention;
    layout.draft = {drafter->decoder.layer_count(), shape.kv_heads, shape.head_dim, 0,
                    options.host_embeddings};
  }
  return layout;
}

MemoryNeeds sequence_needs(const SequenceLayout& layout) {
  MemoryNeeds needs;
  needs.slot = layout.slot_bytes();
  needs.ring_per_row = layout.ring_bytes_per_row();
  // Cursors are a few bytes a row and are counted with the conv rings.
  needs.conv_ring_per_row = layout.conv_ring_bytes_per_row() + layout.cursor_bytes_per_row();
  needs.null_row = layout.cursor_bytes_per_row();
  needs.kv_per_token = layout.kv_bytes_per_token() - layout.host_kv_bytes_per_token();
  needs.page_tokens = layout.page_tokens;
  return needs;
}

std::int64_t planned_weight_bytes(const ModelConfig& config, bool with_draft_head, Float8 float8) {
  const std::int64_t hidden = config.hidden_size;
  Elements all;
  for (const LayerKind kind : config.layers) {
    all += kind == LayerKind::linear ? linear(config) : attention(config);
    all += mlp_and_norms(config);
  }
  const std::int64_t embedding = hidden * config.vocab_rows;
  const std::int64_t tables = config.tied_head ? embedding : 2 * embedding;
  all.vectors += hidden;
  if (with_draft_head) {
    all += attention(config);
    all += mlp_and_norms(config);
    all += {2 * hidden * hidden, 3 * hidden};
  }
  const auto number = static_cast<std::int64_t>(size_of(config.weight_type));
  constexpr std::int64_t kBlockNumbers = kFloat8Block * kFloat8Block;
  const bool kept = float8 == Float8::kept && config.quantisation.float8_blocks;
  const std::int64_t matrix_bytes =
      kept ? all.matrices + all.matrices / kBlockNumbers * std::int64_t{sizeof(float)}
           : all.matrices * number;
  return matrix_bytes + (all.gates + tables) * number +
         all.vectors * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t planned_weight_bytes(const BlockDraftConfig& drafter) {
  const ModelConfig& decoder = drafter.decoder;
  const std::int64_t hidden = decoder.hidden_size;
  const std::int64_t rank = drafter.markov_rank;
  Elements all{drafter.features() * hidden * hidden, 2 * hidden};
  for (int i = 0; i < decoder.layer_count(); ++i) {
    all += attention(decoder);
    all += mlp_and_norms(decoder);
    if (drafter.conv_taps == 0) continue;
    const std::int64_t kernels = std::int64_t{4} * drafter.conv_taps;  // both sides, two sub-layers
    all += {kernels * (hidden / drafter.conv_group) * hidden, kernels * hidden};
  }
  const std::int64_t pairs = std::int64_t{2} * decoder.vocab_rows;
  all += {drafter.selector_rank * (pairs + hidden) + rank * pairs, 0};
  if (drafter.markov == MarkovKind::gated) all += {rank * (hidden + rank), rank};
  if (drafter.markov == MarkovKind::rnn) all += {3 * rank * (hidden + 2 * rank), 3 * rank};
  if (drafter.confidence.value_or(false)) {
    const bool with_markov = drafter.confidence_with_markov.value_or(rank > 0);
    all += {0, hidden + (with_markov ? rank : 0) + 1};
  }
  return all.matrices * static_cast<std::int64_t>(size_of(decoder.weight_type)) +
         all.vectors * static_cast<std::int64_t>(sizeof(float));
}

DType activation_type(const EngineOptions& options, const ModelConfig& config) {
  if (options.device == DeviceKind::cuda) return DType::bf16;
  return options.activations.value_or(config.weight_type == DType::bf16 ? DType::bf16 : DType::f32);
}

std::int64_t logits_bytes(const ModelConfig& config, int logit_rows) {
  return std::int64_t{logit_rows} * config.vocab_rows * static_cast<std::int64_t>(sizeof(float));
}

Result<SequencePlan> plan_sequences(MemoryNeeds needs, int model_context) {
  if (needs.context_length > model_context) {
    return refuse("--context-length", needs.context_length,
                  fmt::format("at most the model's {}", model_context));
  }
  if (needs.context_length == 0) {
    const int least = std::min(model_context, 2048);
    needs.context_length = model_context;
    while (!plan_memory(needs).ok() && needs.context_length > least) {
      // Halving finds a fit in a few steps; the second loop then takes what was left over.
      needs.context_length = std::max(least, needs.context_length / 2 / 1024 * 1024);
    }
    while (needs.context_length < model_context) {
      MemoryNeeds longer = needs;
      longer.context_length = std::min(model_context, needs.context_length + 1024);
      if (!plan_memory(longer).ok()) break;
      needs = longer;
    }
  }
  auto plan = plan_memory(needs);
  if (!plan) return plan.error();
  return SequencePlan{std::move(*plan), needs.context_length};
}

namespace {

// Running requests: as many as are asked for, or as could be useful.
int planned_rows(const EngineOptions& options) {
  return options.max_running_requests > 0 ? options.max_running_requests
                                          : max_useful_requests(options);
}

}  // namespace

int max_useful_requests(const EngineOptions& options) {
  return std::min(MemoryNeeds{}.max_useful_requests, options.step_tokens / options.window_max);
}

Result<std::optional<BlockDraftConfig>> load_drafter_config(const EngineOptions& options,
                                                            const ModelConfig& target) {
  const SpeculationOptions& speculation = options.speculation;
  if (!has_draft_model(speculation.algorithm)) return std::optional<BlockDraftConfig>{};
  if (speculation.draft_model_path.empty()) {
    return Error{
        fmt::format("--speculative-algorithm: {} needs --speculative-draft-model-path, the "
                    "directory of its drafter",
                    name_of(speculation.algorithm))};
  }
  auto config = load_block_draft_config(speculation.draft_model_path, target);
  if (!config) {
    return Error{fmt::format("--speculative-draft-model-path {}: {}",
                             speculation.draft_model_path.string(), config.error().message)};
  }
  const bool dspark = speculation.algorithm == SpeculativeAlgorithm::dspark;
  if (dspark ? !config->from_anchor : config->has_dspark_heads()) {
    return refuse("--speculative-algorithm", name_of(speculation.algorithm),
                  fmt::format("{} for a {} drafter", dspark ? "DFLASH" : "DSPARK",
                              config->decoder.model_type));
  }
  return std::optional(std::move(*config));
}

Result<EngineOptions> resolve_speculation(EngineOptions options, std::string* note) {
  if (options.speculation.algorithm == SpeculativeAlgorithm::none) return options;
  int block_drafts = 0;
  if (has_draft_model(options.speculation.algorithm)) {
    const auto target = load_config(options.model_path);
    if (!target) return target.error();
    const auto drafter = load_drafter_config(options, *target);
    if (!drafter) return drafter.error();
    block_drafts = (*drafter)->drafts();
  }
  const auto plan = plan_speculation(options.speculation, options.fold_block, block_drafts);
  if (!plan) return plan.error();
  options.window_max = plan->window_max;
  if (note != nullptr) *note = plan->note;
  return options;
}

Status check_drafter(const EngineOptions& options, const ModelConfig& config) {
  if (options.speculation.algorithm != SpeculativeAlgorithm::mtp) return {};
  const auto refused = [&](std::string_view accepted) {
    return refuse("--speculative-algorithm", name_of(options.speculation.algorithm), accepted);
  };
  if (config.attention.heads == 0) {
    return refused("NGRAM, or a model with attention heads: the draft head is an attention layer");
  }
  if (config.draft_layers > 1) {
    return refused(fmt::format("NGRAM, or a draft head of one layer: mtp_num_hidden_layers is {}",
                               config.draft_layers));
  }
  if (config.draft_embeddings) {
    return refused("NGRAM, or a draft head with mtp_use_dedicated_embeddings false");
  }
  return {};
}

bool drafts_on_host(const EngineOptions& options) {
  return options.device == DeviceKind::cuda && has_draft_model(options.speculation.algorithm);
}

Status check_device(const EngineOptions& options) {
  if (options.device == DeviceKind::cpu) return {};
  if (options.activations == DType::f32) {
    return refuse("--dtype", name_of(*options.activations), "auto or bfloat16 with --device cuda");
  }
  // The drafter needs the target's embedding, of which dummy weights have none on the host.
  if (drafts_on_host(options) && options.load_format == LoadFormat::dummy) {
    return refuse("--speculative-algorithm", name_of(options.speculation.algorithm),
                  "none, NGRAM or EAGLE with --device cuda and --load-format dummy");
  }
  return {};
}

Status check_step_room(const EngineOptions& options) {
  const int most = options.step_tokens / options.window_max;
  if (most == 0) {
    return refuse("--chunked-prefill-size", options.step_tokens,
                  fmt::format("at least {}, the tokens of a window", options.window_max));
  }
  if (options.max_running_requests < 0 || options.max_running_requests > most) {
    return refuse("--max-running-requests", options.max_running_requests,
                  fmt::format("0 (as many as fit) to {}, so that a step of "
                              "--chunked-prefill-size {} tokens has room for all windows",
                              most, options.step_tokens));
  }
  return {};
}

std::int64_t drafter_bytes(const EngineOptions& options, const ModelConfig& config,
                           const ModelOptions& model_options, const BlockDraftConfig* block,
                           int threads, int rows) {
  const std::int64_t feature = std::int64_t{options.step_tokens} * config.hidden_size *
                               static_cast<std::int64_t>(sizeof(float));
  switch (options.speculation.algorithm) {
    case SpeculativeAlgorithm::none:
      return 0;
    case SpeculativeAlgorithm::ngram:
      return NgramTrie::bytes(NgramDrafter::kCapacity);
    case SpeculativeAlgorithm::mtp:
      return feature +
             MtpDrafter::bytes(config, {options.window_max - 1, options.step_tokens, rows});
    case SpeculativeAlgorithm::dflash:
    case SpeculativeAlgorithm::dspark:
      return block->features() * feature +
             BlockDrafter::bytes(*block, model_options, threads,
                                 {options.window_max - 1, options.step_tokens, rows});
  }
  return 0;
}

StepLimits step_limits(const EngineOptions& options) {
  StepLimits limits;
  limits.tokens = options.step_tokens;
  const bool token_by_token =
      options.device == DeviceKind::cuda && options.recurrence == Recurrence::packed;
  if (token_by_token) limits.chunk = 1;
  limits.logit_rows = std::max(
      options.logit_rows, planned_rows(options) * options.window_max + options.prompt_logit_rows);
  return limits;
}

ModelSizes model_sizes(const EngineOptions& options) {
  // A prompt chunk is a row, too, and a step has no more rows than tokens.
  const int rows = std::min(options.step_tokens, 2 * planned_rows(options));
  return {rows, step_limits(options).logit_rows, options.page_tokens, options.context_length,
          options.graphs};
}

Result<SequencePlan> plan_engine(const EngineOptions& options, const ModelConfig& config,
                                 const ModelOptions& model_options, const SequenceLayout& layout,
                                 const WeightBytes& weights, const BlockDraftConfig* block,
                                 int threads) {
  REPLAYSSM_TRY(check_drafter(options, config));
  MemoryNeeds needs = sequence_needs(layout);
  needs.budget = options.memory_budget > 0 ? options.memory_budget : available_memory();
  needs.weights = weights.model;
  if (!drafts_on_host(options)) needs.drafter = weights.drafter;
  if (options.device == DeviceKind::cpu) {
    needs.drafter +=
        drafter_bytes(options, config, model_options, block, threads, planned_rows(options));
  }
  needs.context_length = options.context_length;
  needs.max_running_requests = options.max_running_requests;
  needs.max_useful_requests = max_useful_requests(options);
  needs.slots_beyond_rows = options.slots_beyond_requests;
  needs.kept_sequences_least = options.kept_sequences_least;
  needs.graphs = device_graph_bytes(options.device);
  needs.workspace =
      device_workspace_bytes(options.device, config, model_options, model_sizes(options), threads);
  if (options.device == DeviceKind::cpu) {
    needs.workspace += logits_bytes(config, step_limits(options).logit_rows);
  }
  return plan_sequences(needs, config.max_positions);
}

}  // namespace replayssm
