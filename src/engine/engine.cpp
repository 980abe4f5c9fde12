#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/machine_memory.h"
#include "engine/memory_needs.h"
#include "engine/model_fingerprint.h"
#include "engine/sequence_archive.h"
#include "engine/step_timing.h"
#include "model/weights.h"
#include "replay/memory_plan.h"
#include "spec/block_drafter.h"
#include "spec/mtp_drafter.h"
#include "spec/ngram_drafter.h"

namespace replayssm {
namespace {

// Precondition: fold block and window are those of a FoldGeometry.
Status check(const EngineOptions& options) {
  if (options.state_type != DType::f32 && options.state_type != DType::bf16) {
    return refuse("--mamba-ssm-dtype", name_of(options.state_type), "float32 or bfloat16");
  }
  if (options.activations && *options.activations != DType::f32 &&
      *options.activations != DType::bf16) {
    return refuse("--dtype", name_of(*options.activations), "auto, float32 or bfloat16");
  }
  if (options.recurrence == Recurrence::packed &&
      options.speculation.algorithm != SpeculativeAlgorithm::none) {
    return refuse("--speculative-algorithm", name_of(options.speculation.algorithm),
                  "none with --disable-linear-replayssm");
  }
  if (options.recurrence == Recurrence::packed && options.window_max > 1) {
    return refuse("--speculative-num-draft-tokens", options.window_max,
                  "1 with --disable-linear-replayssm");
  }
  REPLAYSSM_TRY(check_device(options));
  if (options.step_tokens < 1) return refuse("step tokens", options.step_tokens, "at least 1");
  if (options.page_tokens < 1) return refuse("--page-size", options.page_tokens, "at least 1");
  return check_step_room(options);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& asked,
                                               const DeviceMaker& maker) {
  const auto resolved = resolve_speculation(asked);
  if (!resolved) return resolved.error();
  EngineOptions options = *resolved;
  const auto geometry =
      FoldGeometry::make(options.fold_block, options.window_max, ring_access(options.device));
  if (!geometry) return geometry.error();
  REPLAYSSM_TRY(check(options));
  const auto config = load_config(options.model_path);
  if (!config) return config.error();
  REPLAYSSM_TRY(check_drafter(options, *config));
  const auto fingerprint = model_fingerprint(options.model_path);
  if (!fingerprint) return fingerprint.error();

  ModelOptions model_options;
  model_options.activations = activation_type(options, *config);
  model_options.recurrence = options.recurrence;
  model_options.geometry = *geometry;
  model_options.deterministic = options.deterministic;
  model_options.max_step_tokens = options.step_tokens;
  model_options.draft_head = options.speculation.algorithm == SpeculativeAlgorithm::mtp;
  model_options.host_embeddings = drafts_on_host(options);

  std::unique_ptr<Engine> engine(new Engine);
  engine->options_ = options;
  engine->fingerprint_ = *fingerprint;
  engine->pool_ = std::make_unique<ThreadPool>(options.threads);
  auto device = maker(options.device, *engine->pool_);
  if (!device) return device.error();
  engine->device_ = std::move(*device);
  if (options.device == DeviceKind::cuda) {
    const auto before = engine->device_->free_memory();
    if (!before) return before.error();
    engine->free_before_ = *before;
  }
  model_options.load_format = options.load_format;
  if (model_options.draft_head && options.load_format == LoadFormat::checkpoint &&
      !has_draft_head(options.model_path)) {
    return refuse("--speculative-algorithm", name_of(options.speculation.algorithm),
                  "a checkpoint with mtp.* tensors, or NGRAM");
  }
  // What is available now: the weights take their part of it.
  const auto free = engine->device_->free_memory();
  if (!free) return free.error();
  if (options.memory_budget == 0) {
    options.memory_budget =
        static_cast<std::int64_t>(options.memory_fraction * static_cast<double>(*free));
  }
  // The workspace is made with the model, before there is a plan that could refuse it.
  const std::int64_t workspace = device_workspace_bytes(options.device, *config, model_options,
                                                        model_sizes(options), engine->threads());
  if (workspace > *free) {
    return Error{fmt::format(
        "memory: {} is not enough; the workspace of steps of {} tokens (--chunked-prefill-size) "
        "takes {} ({} bytes)",
        format_bytes(*free), options.step_tokens, format_bytes(workspace), workspace)};
  }
  auto model = engine->device_->load_model(options.model_path, model_options, model_sizes(options));
  if (!model) return model.error();
  engine->model_ = std::move(*model);

  auto drafter = load_drafter_config(options, *config);
  if (!drafter) return drafter.error();
  BlockDraftConfig* block = *drafter ? &**drafter : nullptr;
  BlockDraftWeights drafter_weights;
  if (block != nullptr) {
    auto weights = load_block_draft_weights(options.speculation.draft_model_path, *block);
    if (!weights) return weights.error();
    drafter_weights = std::move(*weights);
    block->confidence = drafter_weights.confidence.has_value();
  }

  const SequenceLayout layout =
      sequence_layout(*config, model_options, engine->ops().state_type_for(options.state_type),
                      options.page_tokens, block);
  const StepLimits limits = step_limits(options);
  auto plan = plan_engine(options, *config, model_options, layout,
                          {engine->model_->weight_bytes(), drafter_weights.bytes}, block,
                          engine->threads());
  if (!plan) return plan.error();
  engine->plan_ = std::move(plan->memory);
  engine->context_length_ = plan->context_length;
  if (const std::int64_t per_token = layout.host_kv_bytes_per_token(); per_token > 0) {
    const std::int64_t positions = std::int64_t{engine->plan_.pages} * layout.page_tokens;
    const std::int64_t available = available_memory();
    if (positions * per_token > available) {
      return refuse("--speculative-algorithm", name_of(options.speculation.algorithm),
                    fmt::format("a drafter on the host whose keys and values of {} positions, {} "
                                "bytes, fit into the {} bytes that are available there",
                                positions, positions * per_token, available));
    }
  }

  auto memory = SequenceMemory::make(layout,
                                     PoolSizes{engine->plan_.rows + engine->plan_.kept_rows,
                                               engine->plan_.slots, engine->plan_.pages},
                                     engine->device_->memory(), options.poison);
  if (!memory) return memory.error();
  engine->memory_ = std::move(*memory);
  engine->runner_ =
      std::make_unique<Runner>(*engine->model_, engine->ops(), *engine->memory_, limits);
  engine->use_drafter(engine->make_drafter(block, std::move(drafter_weights)));
  REPLAYSSM_TRY(engine->set_step_rates());
  return engine;
}

std::unique_ptr<Drafter> Engine::make_drafter(const BlockDraftConfig* block,
                                              BlockDraftWeights weights) {
  const int most = options_.window_max - 1;
  const int first_draft_layer = memory_->layout().attention_layers;
  switch (options_.speculation.algorithm) {
    case SpeculativeAlgorithm::none:
      return nullptr;
    case SpeculativeAlgorithm::ngram:
      return std::make_unique<NgramDrafter>(most);
    case SpeculativeAlgorithm::mtp:
      return std::make_unique<MtpDrafter>(*model_->draft_head(),
                                          memory_->pages().kv(first_draft_layer), config(),
                                          MtpDrafter::Sizes{most, options_.step_tokens, plan_.rows},
                                          options_.speculation.sampled_drafts);
    case SpeculativeAlgorithm::dflash:
    case SpeculativeAlgorithm::dspark: {
      std::vector<KvView> kv;
      kv.reserve(static_cast<std::size_t>(block->decoder.layer_count()));
      for (int i = 0; i < block->decoder.layer_count(); ++i) {
        kv.push_back(memory_->pages().kv(first_draft_layer + i));
      }
      if (drafts_on_host(options_)) host_ops_ = make_cpu_ops(*pool_);
      return std::make_unique<BlockDrafter>(
          *block, std::move(weights), *model_, model_->options(), *pool_,
          host_ops_ ? *host_ops_ : ops(), std::move(kv),
          BlockDrafter::Sizes{most, options_.step_tokens, plan_.rows},
          options_.speculation.sampled_drafts);
    }
  }
  return nullptr;
}

std::int64_t Engine::allocated_bytes() const {
  if (options_.device == DeviceKind::cpu) return 0;
  const auto free = device_->free_memory();
  return free ? free_before_ - *free : 0;
}

Status Engine::set_step_rates() {
  const SpeculationOptions& speculation = options_.speculation;
  if (drafter_ == nullptr || !drafter_->has_confidence() || speculation.step_rates == "none" ||
      speculation.ragged_verify == RaggedVerify::fixed) {
    return {};
  }
  auto rates = speculation.step_rates == "measure" ? measure_step_rates(*this)
                                                   : StepRates::read(speculation.step_rates);
  if (!rates) return Error{fmt::format("--speculative-step-rates: {}", rates.error().message)};
  step_rates_ = std::move(*rates);
  return {};
}

Status Engine::check_prompt(std::span<const TokenId> tokens) const {
  if (tokens.empty()) return refuse("prompt", "no tokens", "at least one token");
  if (static_cast<int>(tokens.size()) > context_length_) {
    return refuse("prompt: tokens", tokens.size(),
                  fmt::format("at most the context of {}", context_length_));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= config().vocab_size) {
      return refuse("prompt: token id", token, fmt::format("0 to {}", config().vocab_size - 1));
    }
  }
  return {};
}

Result<Sequence> Engine::admit(std::vector<TokenId> tokens, const SamplingParams& sampling,
                               Residence resumed) {
  REPLAYSSM_TRY(check_prompt(tokens));
  if (!resumed) {
    auto residence = memory_->admit();
    if (!residence) return residence.error();
    resumed = std::move(*residence);
  }
  Sequence sequence;
  sequence.tokens = std::move(tokens);
  sequence.prompt_tokens = static_cast<int>(sequence.tokens.size());
  sequence.sampling = SamplingState(sampling);
  sequence.sampling.add_prompt(sequence.tokens);
  sequence.memory = std::move(resumed);
  return sequence;
}

Status Engine::extend(Sequence& sequence, std::vector<TokenId> tokens,
                      const SamplingParams& sampling) {
  REPLAYSSM_TRY(check_prompt(tokens));
  const std::span<const TokenId> past =
      std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.evaluated()));
  if (tokens.size() <= past.size() || !std::equal(past.begin(), past.end(), tokens.begin())) {
    return Error{
        fmt::format("prompt: does not go on from the {} tokens that are evaluated", past.size())};
  }
  sequence.tokens = std::move(tokens);
  sequence.prompt_tokens = static_cast<int>(sequence.tokens.size());
  sequence.sampling = SamplingState(sampling);
  sequence.sampling.add_prompt(sequence.tokens);
  return {};
}

Result<Sequence> Engine::fork(const Sequence& parent, std::uint64_t seed) {
  auto residence = memory_->fork(parent.memory);
  if (!residence) return residence.error();
  Sequence child;
  child.tokens = parent.tokens;
  child.prompt_tokens = parent.prompt_tokens;
  child.sampling = parent.sampling;
  child.sampling.set_seed(seed);
  child.drafter = parent.drafter;
  child.memory = std::move(*residence);
  return child;
}

Result<std::vector<std::byte>> Engine::pause(const Sequence& sequence) {
  return archive_sequence(sequence, *memory_, ops(), fingerprint_);
}

Result<Sequence> Engine::resume(std::span<const std::byte> archive) {
  return restore_sequence(archive, *memory_, ops(), fingerprint_);
}

Status Engine::prepare(const StepRow& row) {
  return memory_->prepare(row.sequence->memory, row.tokens, row.phase);
}

StepRow Engine::next_row(Sequence& sequence, int most_tokens) {
  StepRow row;
  row.sequence = &sequence;
  row.phase = sequence.phase();
  if (row.phase == Phase::prefill) {
    const int left = sequence.prompt_tokens - sequence.evaluated();
    row.tokens = std::min(left, most_tokens);
    row.logits = row.tokens == left ? 1 : 0;
  } else {
    row.tokens = 1;
    row.logits = 1;
  }
  return row;
}

void Engine::use_drafter(std::unique_ptr<Drafter> drafter) {
  drafter_ = std::move(drafter);
  step_rates_.reset();
  runner_->keep_hidden(drafter_ == nullptr ? std::span<const int>{} : drafter_->taps());
}

std::unique_ptr<Drafter> Engine::take_drafter() {
  runner_->keep_hidden({});
  return std::move(drafter_);
}

int Engine::most_drafts() const {
  if (drafter_ == nullptr) return 0;
  return std::min(drafter_->most_drafts(), memory_->layout().geometry.window_max() - 1);
}

Status Engine::propose(std::span<DraftRequest> requests) {
  REPLAYSSM_TRY(drafter_->propose(requests));
  for (DraftRequest& request : requests) {
    std::vector<Draft>& drafts = request.drafts;
    const auto most = static_cast<std::size_t>(request.most);
    if (drafts.size() > most) drafts.resize(most);
    // What is no token of the model ends the list.
    const auto foreign = std::find_if(drafts.begin(), drafts.end(), [&](const Draft& draft) {
      return draft.token < 0 || draft.token >= config().vocab_size;
    });
    drafts.erase(foreign, drafts.end());
  }
  const RaggedVerify ragged = options_.speculation.ragged_verify;
  if (ragged != RaggedVerify::fixed) {
    cut_at_threshold(requests, options_.speculation.confidence_threshold);
    if (step_rates_) {
      const std::vector<int> lengths = prefix_lengths(requests, *step_rates_);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        requests[i].drafts.resize(static_cast<std::size_t>(lengths[i]));
      }
    }
  }
  for (DraftRequest& request : requests) {
    request.most_accepted =
        ragged == RaggedVerify::fixed ? request.most : static_cast<int>(request.drafts.size());
    if (ragged != RaggedVerify::compact) {
      request.drafts.resize(static_cast<std::size_t>(request.most));
    }
  }
  return {};
}

}  // namespace replayssm
