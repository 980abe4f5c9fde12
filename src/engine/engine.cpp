#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "engine/machine_memory.h"
#include "engine/memory_needs.h"
#include "engine/model_fingerprint.h"
#include "engine/sequence_archive.h"
#include "engine/step_timing.h"
#include "model/weights.h"
#include "spec/acceptance.h"
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

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& asked) {
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
  auto device = make_device(options.device, *engine->pool_);
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
  if (options.memory_budget == 0) {
    const auto free = engine->device_->free_memory();
    if (!free) return free.error();
    options.memory_budget =
        static_cast<std::int64_t>(options.memory_fraction * static_cast<double>(*free));
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

Result<std::vector<StepResult>> Engine::step(std::span<const StepRow> rows) {
  REPLAYSSM_TRY(launch(rows));
  return take();
}

std::span<const StepRow> Engine::launched() const {
  return flights_.empty() ? std::span<const StepRow>() : flights_.back().rows;
}

bool Engine::may_precede(const StepRow& row) const {
  return drafter_ == nullptr && row.phase == Phase::decode && row.tokens == 1 && row.logits == 1;
}

bool Engine::asks_for_token_before(const StepRow& row) const {
  return row.sequence->sampling.params().penalises() ||
         (row.rules != nullptr && !row.rules->foreseeable());
}

// Whether the tokens of the row's places can be chosen before the first of them is known.
bool Engine::chooses_at_launch(const StepRow& row) const {
  const OutputRules* rules = row.rules;
  if (rules != nullptr && rules->prompt_logprobs() && row.phase == Phase::prefill) return false;
  if (rules != nullptr && rules->top_logprobs().value_or(0) > kMostAlternatives &&
      model_->chooses_tokens()) {
    return false;
  }
  if (row.drafts.empty()) return true;
  const SamplingState& sampling = row.sequence->sampling;
  return model_->chooses_tokens() && !sampling.params().penalises() &&
         (rules == nullptr || rules->unmasked(static_cast<int>(sampling.outputs()))) &&
         std::all_of(row.drafts.begin(), row.drafts.end(),
                     [](const Draft& draft) { return draft.distribution.entries.empty(); });
}

// Says how the tokens of the newest launched step are chosen, one for every row of logits; where
// that is no output token, or nobody wants it, the largest logit is asked for. `unknown`: output
// tokens of every row's sequence that come before and are not known.
Status Engine::choose(Flight& flight, int unknown) {
  TokenChoice nothing;
  nothing.temperature = 0;
  std::vector<TokenChoice> choices;
  seen_.resize(flight.rows.size());
  flight.failed.resize(flight.rows.size());
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    const StepRow& row = flight.rows[i];
    const std::size_t first = choices.size();
    choices.resize(first + static_cast<std::size_t>(row.logits), nothing);
    if (row.sequence == nullptr) continue;
    const std::size_t anchor = choices.size() - 1 - row.drafts.size();
    const SamplingState& sampling = row.sequence->sampling;
    for (int n = 0; n < flight.outputs[i]; ++n) {
      const std::uint64_t index = sampling.outputs() + static_cast<std::uint64_t>(unknown + n);
      TokenChoice choice = sampling.choice(index, seen_[i]);
      if (row.rules != nullptr) {
        const auto allowed = row.rules->mask(static_cast<int>(index), config().vocab_size);
        if (!allowed) {
          flight.failed[i] = allowed.error();
          break;
        }
        choice.mask = *allowed;
        choice.bias = row.rules->logit_bias();
        choice.top_logprobs = row.rules->top_logprobs();
      }
      choices[anchor + static_cast<std::size_t>(n)] = choice;
    }
  }
  return runner_->choose(choices);
}

Status Engine::launch(std::span<const StepRow> rows) {
  if (flights_.size() == 2) return Error{"launch: two steps are launched and not taken"};
  Flight flight;
  flight.rows.assign(rows.begin(), rows.end());
  flight.chosen = std::all_of(rows.begin(), rows.end(),
                              [&](const StepRow& row) { return chooses_at_launch(row); });
  bool drafted = false;
  std::vector<int> all;
  for (const StepRow& row : rows) {
    const int drafts = static_cast<int>(row.drafts.size());
    const bool ends_past = row.logits > 0 && row.sequence->waiting() <= row.tokens - drafts;
    flight.first.push_back(row.sequence->evaluated());
    flight.outputs.push_back(ends_past ? 1 + std::min(drafts, row.most_accepted) : 0);
    drafted = drafted || drafts > 0;
    all.push_back(row.tokens);
  }
  if (flight.chosen) {
    const bool ahead = !flights_.empty();
    flight.choice_waits = ahead && std::any_of(rows.begin(), rows.end(), [&](const StepRow& row) {
                            return asks_for_token_before(row);
                          });
    REPLAYSSM_TRY(runner_->launch(rows));
    if (!flight.choice_waits) REPLAYSSM_TRY(choose(flight, ahead ? 1 : 0));
  } else {
    const auto logits = runner_->evaluate(rows);
    if (!logits) return logits.error();
    flight.logits = *logits;
  }
  // With drafts, or behind a step that is not taken, it is known later what is committed.
  if (flight.chosen && !drafted && flights_.empty()) REPLAYSSM_TRY(commit(flight, all));
  flights_.push_back(std::move(flight));
  return {};
}

Status Engine::commit(Flight& flight, std::span<const int> accepted) {
  for (const StepRow& row : flight.rows) flight.cost.push_back(row.sequence->counters);
  REPLAYSSM_TRY(runner_->commit(accepted));
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    flight.cost[i] = flight.rows[i].sequence->counters - flight.cost[i];
  }
  flight.committed = true;
  return {};
}

Result<std::vector<StepResult>> Engine::take() {
  if (flights_.empty()) return Error{"take: no step is launched"};
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  std::span<const ChosenToken> chosen;
  if (flight.chosen) {
    const auto taken = runner_->take();
    if (!taken) return taken.error();
    chosen = *taken;
  }

  std::vector<StepResult> results;
  std::vector<int> accepted;
  std::size_t logit_row = 0;
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    const StepRow& row = flight.rows[i];
    const std::size_t first_row = logit_row;
    logit_row += static_cast<std::size_t>(row.logits);
    accepted.push_back(row.tokens);
    if (row.sequence == nullptr) continue;
    StepResult result;
    result.sequence = row.sequence;
    result.phase = row.phase;
    result.evaluated = row.tokens;
    const SequenceCounters before = row.sequence->counters;
    const Status read = flight.chosen ? read_chosen(row, flight, i, chosen.subspan(first_row), result)
                                      : read_logits(row, flight, i, static_cast<int>(first_row),
                                                    result);
    if (!read) result.error = read.error();
    result.cost = row.sequence->counters - before;
    // Every output token but the newest has been evaluated in this step.
    if (!row.drafts.empty()) accepted.back() = std::max(1, static_cast<int>(result.tokens.size()));
    results.push_back(std::move(result));
  }
  if (!flight.committed) REPLAYSSM_TRY(commit(flight, accepted));
  auto result = results.begin();
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    if (flight.rows[i].sequence != nullptr) (result++)->cost += flight.cost[i];
  }
  REPLAYSSM_TRY(observe(flight.rows, flight.first, accepted));
  REPLAYSSM_TRY(settle_next(results));
  return results;
}

// Commits the step that was launched behind the one with these results: nothing of the rows whose
// sequences have ended, which it has no result for. (A state that is written every token cannot be
// taken back: then their tokens count.)
Status Engine::settle_next(std::span<const StepResult> results) {
  if (flights_.empty()) return {};
  Flight& next = flights_.front();
  std::vector<char> ended;
  std::vector<int> accepted;
  for (const StepRow& row : next.rows) {
    const auto result = std::find_if(results.begin(), results.end(), [&](const StepResult& each) {
      return each.sequence == row.sequence;
    });
    ended.push_back(result == results.end() || result->ended());
    const bool takes_back = memory_->layout().recurrence == Recurrence::replay;
    accepted.push_back(ended.back() != 0 && takes_back ? 0 : row.tokens);
  }
  REPLAYSSM_TRY(commit(next, accepted));
  for (std::size_t i = 0; i < ended.size(); ++i) {
    if (ended[i] != 0) next.rows[i].sequence = nullptr;
  }
  const bool wanted = std::find(ended.begin(), ended.end(), 0) != ended.end();
  if (!wanted) {
    forget_launched();
    return {};
  }
  return next.choice_waits ? choose(next, 0) : Status{};
}

void Engine::forget_launched() {
  flights_.clear();
  runner_->forget_launched();
}

// Tells the drafter what was committed.
Status Engine::observe(std::span<const StepRow> rows, std::span<const int> first,
                       std::span<const int> accepted) {
  if (drafter_ == nullptr) return {};
  std::vector<CommittedTokens> committed;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Sequence& sequence = *rows[i].sequence;
    committed.push_back({{sequence.tokens, sequence.memory.pages(), &sequence.drafter},
                         first[i],
                         accepted[i],
                         runner_->hidden_of(static_cast<int>(i)).data()});
  }
  return drafter_->observe(committed);
}

// The tokens that the launch chose, up to the first that is not the draft for its place.
Status Engine::read_chosen(const StepRow& row, const Flight& flight, std::size_t at,
                           std::span<const ChosenToken> chosen, StepResult& result) {
  const int outputs = flight.outputs[at];
  if (outputs == 0) return {};
  if (flight.failed[at]) return *flight.failed[at];
  const std::size_t drafts = row.drafts.size();
  const std::size_t anchor = static_cast<std::size_t>(row.logits) - 1 - drafts;
  SequenceCounters& counters = row.sequence->counters;
  counters.windows += drafts > 0 ? 1 : 0;
  counters.drafts += outputs - 1;
  for (int i = 0; i < outputs; ++i) {
    const auto place = static_cast<std::size_t>(i);
    const ChosenToken& next = chosen[anchor + place];
    if (next.error) {
      result.finite = next.finite;
      return *next.error;
    }
    REPLAYSSM_TRY(put_out(row, next.token, result));
    result.tokens.back().logprobs = next.logprobs;
    const bool accepted = i + 1 < outputs && next.token == row.drafts[place].token;
    counters.drafts_accepted += accepted ? 1 : 0;
    if (!accepted || result.ended()) break;
  }
  return {};
}

// Log-probabilities of the prompt where they are wanted; then, if the row is the sequence's last
// one that waits, the next tokens.
Status Engine::read_logits(const StepRow& row, const Flight& flight, std::size_t at, int first_row,
                           StepResult& result) {
  const int drafts = static_cast<int>(row.drafts.size());
  if (row.rules != nullptr && row.rules->prompt_logprobs() && row.phase == Phase::prefill) {
    REPLAYSSM_TRY(
        read_prompt_logprobs(row, flight.logits, flight.first[at], first_row, result));
  }
  const int outputs = flight.outputs[at];
  if (outputs == 0) return {};
  const int anchor = first_row + row.logits - 1 - drafts;
  SequenceCounters& counters = row.sequence->counters;
  counters.windows += drafts > 0 ? 1 : 0;
  counters.drafts += outputs - 1;
  for (int i = 0; i < outputs; ++i) {
    const Draft* draft = i + 1 < outputs ? &row.drafts[static_cast<std::size_t>(i)] : nullptr;
    const auto token = sample(row, runner_->logits_row(flight.logits, anchor + i), draft, result);
    if (!token) return token.error();
    const bool accepted = draft != nullptr && *token == draft->token;
    counters.drafts_accepted += accepted ? 1 : 0;
    if (!accepted || result.ended()) break;
  }
  return {};
}

Status Engine::read_prompt_logprobs(const StepRow& row, std::span<const float> logits, int position,
                                    int first_row, StepResult& result) {
  const Sequence& sequence = *row.sequence;
  const int first = position + row.tokens - row.logits;
  for (int i = 0; i < row.logits && first + i + 1 < sequence.prompt_tokens; ++i) {
    const auto at_position = runner_->logits_row(logits, first_row + i);
    if (Status finite = check_finite(at_position); !finite) {
      result.finite = false;
      return finite;
    }
    const auto at = static_cast<std::size_t>(first) + static_cast<std::size_t>(i) + 1;
    result.prompt_logprobs.push_back(
        token_logprobs(at_position, sequence.tokens[at], *row.rules->prompt_logprobs()));
  }
  return {};
}

// The sequence's next token. `draft`: the one that was guessed for its place, or null.
Result<TokenId> Engine::sample(const StepRow& row, std::span<const float> logits,
                               const Draft* draft, StepResult& result) {
  if (Status finite = check_finite(logits); !finite) {
    result.finite = false;
    return finite.error();
  }
  SamplingState& sampling = row.sequence->sampling;
  LogitMask mask;
  LogitBias bias;
  if (row.rules != nullptr) {
    const auto allowed = row.rules->mask(static_cast<int>(sampling.outputs()), config().vocab_size);
    if (!allowed) return allowed.error();
    mask = *allowed;
    bias = row.rules->logit_bias();
  }
  const auto target = sampler_.distribution(logits, sampling, mask, bias);
  if (!target) return target.error();
  const TokenId token = output_token(**target, draft == nullptr ? Draft{} : *draft,
                                     sampling.params().seed, sampling.outputs());
  REPLAYSSM_TRY(put_out(row, token, result));
  if (row.rules != nullptr && row.rules->top_logprobs()) {
    result.tokens.back().logprobs = token_logprobs(logits, token, *row.rules->top_logprobs());
  }
  return token;
}

// Appends a token to the row's sequence and to what the step gave it.
Status Engine::put_out(const StepRow& row, TokenId token, StepResult& result) {
  SampledToken sampled{token, std::nullopt};
  if (row.rules != nullptr) {
    REPLAYSSM_TRY(row.rules->accept(token));
    sampled.ends = row.rules->ends(token);
    sampled.last = !sampled.ends && row.rules->complete();
  }
  result.tokens.push_back(std::move(sampled));
  row.sequence->tokens.push_back(token);
  row.sequence->sampling.add_output(token);
  return {};
}

}  // namespace replayssm
