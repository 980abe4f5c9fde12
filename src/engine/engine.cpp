#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/machine_memory.h"
#include "engine/memory_needs.h"
#include "engine/model_fingerprint.h"
#include "engine/sequence_archive.h"

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
  if (options.recurrence == Recurrence::packed && options.window_max > 1) {
    return refuse("--speculative-num-draft-tokens", options.window_max,
                  "1 with --disable-linear-replayssm");
  }
  if (options.step_tokens < 1) return refuse("step tokens", options.step_tokens, "at least 1");
  if (options.page_tokens < 1) return refuse("--page-size", options.page_tokens, "at least 1");
  if (options.max_running_requests < 0 ||
      options.max_running_requests * options.window_max > options.step_tokens) {
    return refuse("--max-running-requests", options.max_running_requests,
                  fmt::format("0 (as many as fit) to {}, so that a step of {} tokens has room for "
                              "all windows",
                              options.step_tokens / options.window_max, options.step_tokens));
  }
  return {};
}

// float16 weights are computed with in float32: half has too few exponent bits for activations.
DType stored_type(const ModelConfig& config) {
  return config.weight_type == DType::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  const auto geometry = FoldGeometry::make(options.fold_block, options.window_max, kCpuRingAccess);
  if (!geometry) return geometry.error();
  REPLAYSSM_TRY(check(options));
  const auto config = load_config(options.model_path);
  if (!config) return config.error();
  const auto fingerprint = model_fingerprint(options.model_path);
  if (!fingerprint) return fingerprint.error();

  ModelOptions model_options;
  model_options.activations = options.activations.value_or(stored_type(*config));
  model_options.recurrence = options.recurrence;
  model_options.geometry = *geometry;
  model_options.deterministic = options.deterministic;
  model_options.max_step_tokens = options.step_tokens;

  std::unique_ptr<Engine> engine(new Engine);
  engine->options_ = options;
  engine->fingerprint_ = *fingerprint;
  engine->pool_ = std::make_unique<ThreadPool>(options.threads);
  engine->ops_ = make_cpu_ops(*engine->pool_);
  auto model = Model::load(options.model_path, model_options, *engine->pool_, *engine->ops_);
  if (!model) return model.error();
  engine->model_ = std::move(*model);

  const SequenceLayout layout =
      sequence_layout(*config, model_options, engine->ops_->state_type_for(options.state_type),
                      options.page_tokens);
  const StepLimits limits = step_limits(options);
  auto plan = plan_engine(options, *config, model_options, layout, engine->model_->weight_bytes(),
                          0, engine->threads());
  if (!plan) return plan.error();
  engine->plan_ = std::move(plan->memory);
  engine->context_length_ = plan->context_length;

  engine->memory_ =
      std::make_unique<SequenceMemory>(layout,
                                       PoolSizes{engine->plan_.rows + engine->plan_.kept_rows,
                                                 engine->plan_.slots, engine->plan_.pages},
                                       options.poison);
  engine->runner_ =
      std::make_unique<Runner>(*engine->model_, *engine->ops_, *engine->memory_, limits);
  return engine;
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
  child.memory = std::move(*residence);
  return child;
}

Result<std::vector<std::byte>> Engine::pause(const Sequence& sequence) {
  return archive_sequence(sequence, *memory_, *ops_, fingerprint_);
}

Result<Sequence> Engine::resume(std::span<const std::byte> archive) {
  return restore_sequence(archive, *memory_, *ops_, fingerprint_);
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

Result<std::vector<StepResult>> Engine::step(std::span<const StepRow> rows) {
  const auto logits = runner_->evaluate(rows);
  if (!logits) return logits.error();
  REPLAYSSM_TRY(runner_->commit());

  std::vector<StepResult> results;
  int logit_row = 0;
  for (const StepRow& row : rows) {
    StepResult result;
    result.sequence = row.sequence;
    if (row.logits > 0) {
      const Status read = read_logits(row, *logits, logit_row, result);
      if (!read) result.error = read.error();
    }
    logit_row += row.logits;
    results.push_back(std::move(result));
  }
  return results;
}

// Log-probabilities of the prompt where they are wanted; then, if the row is the sequence's last
// one that waits, the next token.
Status Engine::read_logits(const StepRow& row, std::span<const float> logits, int first_row,
                           StepResult& result) {
  Sequence& sequence = *row.sequence;
  const auto logits_of = [&](int i) { return runner_->logits_row(logits, first_row + i); };
  if (row.rules != nullptr && row.rules->prompt_logprobs() && row.phase == Phase::prefill) {
    const int first = sequence.evaluated() - row.logits;
    for (int i = 0; i < row.logits && first + i + 1 < sequence.prompt_tokens; ++i) {
      if (Status finite = check_finite(logits_of(i)); !finite) {
        result.finite = false;
        return finite;
      }
      const auto at = static_cast<std::size_t>(first) + static_cast<std::size_t>(i) + 1;
      const TokenId next = sequence.tokens[at];
      result.prompt_logprobs.push_back(
          token_logprobs(logits_of(i), next, *row.rules->prompt_logprobs()));
    }
  }
  if (sequence.waiting() > 0) return {};
  const auto last = logits_of(row.logits - 1);
  if (Status finite = check_finite(last); !finite) {
    result.finite = false;
    return finite;
  }
  LogitMask mask;
  LogitBias bias;
  if (row.rules != nullptr) {
    mask = row.rules->mask(static_cast<int>(sequence.sampling.outputs()), config().vocab_size);
    bias = row.rules->logit_bias();
  }
  const auto token = sampler_.sample(last, sequence.sampling, mask, bias);
  if (!token) return token.error();
  if (row.rules != nullptr) {
    REPLAYSSM_TRY(row.rules->accept(*token));
    if (row.rules->top_logprobs()) {
      result.token_logprobs = token_logprobs(last, *token, *row.rules->top_logprobs());
    }
  }
  result.token = *token;
  sequence.tokens.push_back(*token);
  sequence.sampling.add_output(*token);
  return {};
}

}  // namespace replayssm
