#include "engine_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "core/random_stream.h"
#include "cuda_bench.h"
#include "engine/engine.h"
#include "engine/memory_needs.h"
#include "stopwatch.h"

namespace replayssm::bench {
namespace {

constexpr int kWarmUpSteps = 3;

using Texts = std::vector<std::vector<TokenId>>;

// Asks another drafter, and then proposes what plain decoding gave, wrong from some place on: the
// places are chosen so that windows commit `accepted_length` tokens in the mean.
class SimulatedDrafter final : public Drafter {
 public:
  SimulatedDrafter(std::unique_ptr<Drafter> asked, const Texts& texts, double accepted_length)
      : asked_(std::move(asked)), texts_(texts), right_(accepted_length - 1) {}

  int most_drafts() const override { return asked_->most_drafts(); }
  std::span<const int> taps() const override { return asked_->taps(); }
  Status observe(std::span<const CommittedTokens> rows) override { return asked_->observe(rows); }
  Status propose(std::span<DraftRequest> rows) override {
    REPLAYSSM_TRY(asked_->propose(rows));
    for (DraftRequest& row : rows) {
      const std::span<const TokenId> tokens = row.sequence.tokens;
      const auto text = std::find_if(texts_.begin(), texts_.end(), [&](const auto& known) {
        return known.size() > tokens.size() &&
               std::equal(tokens.begin(), tokens.end(), known.begin());
      });
      owed_ += right_;
      const int right = std::clamp(static_cast<int>(owed_), 0, row.most);
      owed_ -= right;
      row.drafts.clear();
      for (int i = 0; i < row.most; ++i) {
        const std::size_t at = tokens.size() + static_cast<std::size_t>(i);
        const TokenId truth = text != texts_.end() && at < text->size() ? (*text)[at] : 0;
        row.drafts.push_back({i < right ? truth : truth == 0 ? 1 : truth - 1, {}});
      }
    }
    return {};
  }

 private:
  std::unique_ptr<Drafter> asked_;
  const Texts& texts_;
  double right_;
  double owed_ = 0;
};

// Fills memory of a space with small bf16 numbers of random signs and mantissas, which are small
// float32 numbers in pairs.
Status fill_at_random(MemorySpace& space, void* data, std::size_t bytes) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::vector<std::uint16_t> block(std::min(kBlock, bytes) / sizeof(std::uint16_t));
  for (std::size_t i = 0; i < block.size(); ++i) {
    const std::uint64_t bits = mix_bits(i);
    block[i] = static_cast<std::uint16_t>((bits & 0x807f) | 0x3c00);  // 1/128 to 1/64
  }
  auto* const to = static_cast<std::byte*>(data);
  std::size_t filled = block.size() * sizeof(std::uint16_t);
  const MemoryCopy first{reinterpret_cast<const std::byte*>(block.data()), 0, to, 0, filled, 1};
  REPLAYSSM_TRY(space.write({&first, 1}));
  for (std::size_t count = 0; filled < bytes; filled += count) {
    count = std::min(filled, bytes - filled);
    const MemoryCopy more{to, 0, to + filled, 0, count, 1};
    REPLAYSSM_TRY(space.copy({&more, 1}));
  }
  return {};
}

// The states of all slots, the keys and values of all pages.
Status fill_at_random(SequenceMemory& memory) {
  const SequenceViews& views = memory.views();
  if (!views.states.empty()) {
    REPLAYSSM_TRY(fill_at_random(memory.space(), views.states.front().data,
                                 static_cast<std::size_t>(memory.slots().bytes())));
  }
  for (int layer = 0; layer < memory.layout().attention_layers; ++layer) {
    const KvView& kv = views.kv[static_cast<std::size_t>(layer)];
    const std::size_t bytes = memory.pages().position_bytes(layer) *
                              static_cast<std::size_t>(kv.pages) *
                              static_cast<std::size_t>(kv.page_tokens);
    REPLAYSSM_TRY(fill_at_random(memory.space(), kv.keys, bytes));
    REPLAYSSM_TRY(fill_at_random(memory.space(), kv.values, bytes));
  }
  return {};
}

struct Decoded {
  DecodeTimes times;
  Texts texts;  // prompts with their outputs
  double prefill_tokens_per_s = 0;
  double accepted_length = 0;
  EngineMemory memory;
  std::int64_t ring_bytes = 0;
  std::int64_t slot_bytes = 0;
};

class EngineRun {
 public:
  EngineRun(Engine& engine, const EngineBenchOptions& options)
      : engine_(engine), options_(options) {}

  Status admit() {
    if (options_.skip_prefill) REPLAYSSM_TRY(fill_at_random(engine_.memory()));
    for (int i = 0; i < options_.batch; ++i) {
      std::vector<TokenId> prompt;
      for (int j = 0; j < options_.context; ++j) {
        prompt.push_back(static_cast<TokenId>(
            uniform_at(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)) *
            engine_.config().vocab_size));
      }
      SamplingParams sampling;
      sampling.temperature = options_.temperature;
      sampling.top_k = options_.top_k;
      sampling.top_p = options_.top_p;
      sampling.seed = static_cast<std::uint64_t>(i);
      Residence resumed;
      if (options_.skip_prefill) {
        auto residence = engine_.memory().admit(before_last_token());
        if (!residence) return residence.error();
        resumed = std::move(*residence);
      }
      auto sequence = engine_.admit(std::move(prompt), sampling, std::move(resumed));
      if (!sequence) return sequence.error();
      sequences_.push_back(std::move(*sequence));
    }
    return {};
  }

  // The first output token of every sequence comes out of this.
  Status prefill() {
    for (Sequence& sequence : sequences_) {
      Status status;
      prefill_us_.push_back(elapsed_us([&] { status = prefill(sequence); }));
      REPLAYSSM_TRY(status);
    }
    return {};
  }

  double prefill_tokens_per_s() const {
    const std::size_t left_out = prefill_us_.size() > 1 ? 1 : 0;
    double us = 0;
    for (std::size_t i = left_out; i < prefill_us_.size(); ++i) us += prefill_us_[i];
    const auto prompts = static_cast<double>(prefill_us_.size() - left_out);
    return prompts * options_.context / us * 1e6;
  }

  // One token a sequence, or a window. Without drafts the next step is launched before this one is
  // taken, where the options allow it and steps run beside the host.
  Status decode_once() {
    if (engine_.most_drafts() > 0) return verify_once();
    if (engine_.launched().empty()) REPLAYSSM_TRY(launch(plain_rows()));
    if (overlaps()) {
      const std::vector<StepRow> ahead = plain_rows();
      if (!ahead.empty()) REPLAYSSM_TRY(launch(ahead));
    }
    return take();
  }

  Status verify_once() {
    std::vector<DraftRequest> drafted;
    std::vector<StepRow> rows;
    for (Sequence& sequence : sequences_) {
      const int left = options_.context + 1 + options_.outputs - tokens_of(sequence);
      if (left == 0) continue;
      rows.push_back(Engine::next_row(sequence, 1));
      const int most = std::min(engine_.most_drafts(), left - 1);
      if (most == 0) continue;
      StepRow& window = rows.back();
      window.phase = Phase::verify;
      window.tokens = window.logits = 1 + most;
      REPLAYSSM_TRY(engine_.prepare(window));
      drafted.push_back({{sequence.tokens, sequence.memory.pages(), &sequence.drafter},
                         most,
                         &sequence.sampling.params(),
                         sequence.sampling.outputs(),
                         {}});
    }
    if (!drafted.empty()) REPLAYSSM_TRY(engine_.propose(drafted));
    auto request = drafted.begin();
    for (StepRow& row : rows) {
      if (row.phase != Phase::verify) continue;
      row.drafts = request->drafts;
      row.most_accepted = request->most_accepted;
      row.tokens = row.logits = 1 + static_cast<int>(row.drafts.size());
      if (row.drafts.empty()) row.phase = Phase::decode;
      ++request;
    }
    return step(rows);
  }

  bool done() const {
    return std::all_of(sequences_.begin(), sequences_.end(), [&](const Sequence& sequence) {
      return tokens_of(sequence) == options_.context + 1 + options_.outputs;
    });
  }

  // Of all sequences, prompts included.
  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (const Sequence& sequence : sequences_) sum += tokens_of(sequence);
    return sum;
  }

  Texts texts() const {
    Texts texts;
    for (const Sequence& sequence : sequences_) texts.push_back(sequence.tokens);
    return texts;
  }

  SequenceCounters counters() const {
    SequenceCounters sum;
    for (const Sequence& sequence : sequences_) {
      sum.state_bytes_read += sequence.counters.state_bytes_read;
      sum.state_bytes_written += sequence.counters.state_bytes_written;
      sum.windows += sequence.counters.windows;
      sum.drafts_accepted += sequence.counters.drafts_accepted;
    }
    return sum;
  }

 private:
  Status prefill(Sequence& sequence) {
    while (sequence.phase() == Phase::prefill) {
      const StepRow row = Engine::next_row(sequence, longest_chunk());
      REPLAYSSM_TRY(step({&row, 1}));
    }
    return {};
  }

  int longest_chunk() const {
    const StepLimits& limits = engine_.runner().limits();
    return std::min(limits.chunk, limits.tokens);
  }

  // As the scheduler: a state that is written every token cannot be taken back.
  bool overlaps() const {
    const EngineOptions& options = engine_.options();
    return options.overlap && options.recurrence == Recurrence::replay &&
           engine_.runs_beside_host();
  }

  // Where a sequence stands that has evaluated all of its prompt but one token.
  Cursor before_last_token() const {
    const int committed = options_.context - 1;
    const bool replay = engine_.options().recurrence == Recurrence::replay;
    const int block = replay ? engine_.options().fold_block : 1;
    const int checkpoint = committed == 0 ? 0
                           : replay       ? (committed - 1) / block * block
                                          : committed;
    return {Depth{committed}, Depth{checkpoint}};
  }

  static int tokens_of(const Sequence& sequence) {
    return static_cast<int>(sequence.tokens.size());
  }

  // Of the sequences that want more tokens than they have or are about to get.
  std::vector<StepRow> plain_rows() {
    std::vector<StepRow> rows;
    for (Sequence& sequence : sequences_) {
      const int coming = sequence.waiting() == 0 ? 1 : 0;
      if (tokens_of(sequence) + coming == options_.context + 1 + options_.outputs) continue;
      rows.push_back(Engine::next_row(sequence, 1));
    }
    return rows;
  }

  Status launch(std::span<const StepRow> rows) {
    for (const StepRow& row : rows) REPLAYSSM_TRY(engine_.prepare(row));
    return engine_.launch(rows);
  }

  Status step(std::span<const StepRow> rows) {
    REPLAYSSM_TRY(launch(rows));
    return take();
  }

  Status take() {
    const auto results = engine_.take();
    if (!results) return results.error();
    for (const StepResult& result : *results) {
      if (result.error) return *result.error;
    }
    return {};
  }

  Engine& engine_;
  const EngineBenchOptions& options_;
  std::vector<Sequence> sequences_;
  std::vector<double> prefill_us_;  // of each
};

EngineOptions engine_options(const EngineBenchOptions& options) {
  EngineOptions engine = options.engine;
  engine.max_running_requests = options.batch;
  engine.context_length = options.context + 1 + options.outputs;
  // Room for every sequence's window in a step, where the usual step has too little.
  if (const auto resolved = resolve_speculation(engine)) {
    engine.step_tokens = std::max(engine.step_tokens, options.batch * resolved->window_max);
  }
  return engine;
}

// The matrices that a step multiplies with: all but an embedding that is not the head, too.
std::int64_t weights_read(const ModelConfig& config, DeviceKind device) {
  const std::int64_t embedding = std::int64_t{config.vocab_rows} * config.hidden_size *
                                 static_cast<std::int64_t>(size_of(config.weight_type));
  return planned_weight_bytes(config, false, float8_on(device)) -
         (config.tied_head ? 0 : embedding);
}

// `truth`: replaces the drafts, if not null.
Result<Decoded> decode(const EngineBenchOptions& options, const EngineOptions& asked,
                       const Texts* truth, double read_gb_per_s) {
  auto created = Engine::create(asked);
  if (!created) return created.error();
  Engine& engine = **created;
  if (truth != nullptr) {
    engine.use_drafter(std::make_unique<SimulatedDrafter>(engine.take_drafter(), *truth,
                                                          *options.simulated_accepted_length));
  }
  EngineRun run(engine, options);
  REPLAYSSM_TRY(run.admit());
  Status status;
  REPLAYSSM_TRY(run.prefill());
  // The first steps load a GPU's libraries and capture its graph. They are left out where enough
  // others are left.
  const int warm_up = options.outputs >= 8 * kWarmUpSteps ? kWarmUpSteps : 0;
  for (int i = 0; i < warm_up; ++i) REPLAYSSM_TRY(run.decode_once());
  const SequenceCounters before = run.counters();
  const std::int64_t tokens_before = run.tokens();
  std::vector<double> steps;
  while (!run.done()) {
    steps.push_back(elapsed_us([&] { status = run.decode_once(); }));
    REPLAYSSM_TRY(status);
  }
  const SequenceCounters after = run.counters();

  Decoded decoded;
  decoded.memory = {engine.plan().used, engine.allocated_bytes()};
  const SequenceLayout& layout = engine.memory().layout();
  decoded.ring_bytes =
      options.batch * (layout.ring_bytes_per_row() + layout.conv_ring_bytes_per_row());
  decoded.slot_bytes = layout.slot_bytes();
  decoded.texts = run.texts();
  const auto outputs = static_cast<double>(run.tokens() - tokens_before);
  decoded.prefill_tokens_per_s = run.prefill_tokens_per_s();
  DecodeTimes& times = decoded.times;
  double us = 0;
  for (const double each : steps) us += each;
  times.seconds = us * 1e-6;
  times.tokens_per_s = outputs / times.seconds;
  times.steps = static_cast<std::int64_t>(steps.size());
  times.step_us = median(std::move(steps));
  const std::int64_t windows = after.windows - before.windows;
  if (windows > 0) {
    decoded.accepted_length =
        1.0 + static_cast<double>(after.drafts_accepted - before.drafts_accepted) /
                  static_cast<double>(windows);
    return decoded;
  }
  // Weights once a step; states, records and folds as the sequences counted them; keys and values
  // of everything before the token.
  const double state = static_cast<double>(after.state_bytes_read - before.state_bytes_read +
                                           after.state_bytes_written - before.state_bytes_written);
  const double positions = options.context + 0.5 * options.outputs;
  times.bytes_per_step = static_cast<double>(weights_read(engine.config(), asked.device)) +
                         state / static_cast<double>(times.steps) +
                         options.batch * positions *
                             static_cast<double>(engine.memory().layout().kv_bytes_per_token());
  times.bound_tokens_per_s = options.batch * read_gb_per_s * 1e9 / times.bytes_per_step;
  times.fraction_of_bound = times.tokens_per_s / times.bound_tokens_per_s;
  return decoded;
}

Status check(const EngineBenchOptions& options) {
  if (!options.simulated_accepted_length) return {};
  if (options.engine.speculation.algorithm == SpeculativeAlgorithm::none) {
    return Error{"--simulated-accepted-length: needs --speculative-algorithm"};
  }
  const auto resolved = resolve_speculation(options.engine);
  if (!resolved) return resolved.error();
  const double length = *options.simulated_accepted_length;
  if (!(length >= 1 && length <= resolved->window_max)) {
    return refuse("--simulated-accepted-length", length,
                  fmt::format("1 to {}, the window", resolved->window_max));
  }
  return {};
}

}  // namespace

Result<EngineBenchReport> run_engine_bench(const EngineBenchOptions& options) {
  REPLAYSSM_TRY(check(options));
  const auto config = load_config(options.engine.model_path);
  if (!config) return config.error();
  if (const int most = config->max_positions - 1 - options.outputs; options.context > most) {
    return refuse("--context", options.context,
                  fmt::format("at most {}: the model has {} positions, --max-tokens takes {}",
                              std::max(most, 0), config->max_positions, options.outputs + 1));
  }
  EngineBenchReport report;
  report.weight_bytes = planned_weight_bytes(*config, false, float8_on(options.engine.device));
  {
    ThreadPool pool(options.engine.threads);
    report.threads = pool.threads();
    const std::size_t beyond_cache = 4 * last_level_cache_bytes();
    if (options.engine.device == DeviceKind::cpu) {
      report.ceilings = measure_ceilings(pool, beyond_cache);
    }
  }
  if (options.engine.device == DeviceKind::cuda) {
    auto gpu = measure_gpu();
    if (!gpu) return gpu.error();
    report.ceilings = gpu->ceilings;
    report.gpu = std::move(gpu->name);
  }
  const double read = report.ceilings.read_gb_per_s;

  EngineOptions plain = engine_options(options);
  plain.speculation = {};
  auto replay = decode(options, plain, nullptr, read);
  if (!replay) return replay.error();
  report.replay = replay->times;
  if (!options.skip_prefill) report.prefill_tokens_per_s = replay->prefill_tokens_per_s;
  report.memory = replay->memory;

  plain.recurrence = Recurrence::packed;
  const auto packed = decode(options, plain, nullptr, read);
  if (!packed) return packed.error();
  report.packed = packed->times;

  if (options.engine.speculation.algorithm == SpeculativeAlgorithm::none) return report;
  const Texts* truth = options.simulated_accepted_length ? &replay->texts : nullptr;
  const auto drafted = decode(options, engine_options(options), truth, read);
  if (!drafted) return drafted.error();
  const auto resolved = resolve_speculation(options.engine);
  report.speculative = SpeculativeTimes{
      drafted->times,           resolved->window_max,
      drafted->accepted_length, drafted->memory,
      drafted->ring_bytes,      options.batch * resolved->window_max * drafted->slot_bytes};
  return report;
}

}  // namespace replayssm::bench
