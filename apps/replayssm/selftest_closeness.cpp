#include "selftest_closeness.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace replayssm::cli {
namespace {

constexpr int kContinuation = 96;  // most tokens after each prompt, chosen greedily
constexpr int kChunk = 48;
constexpr double kFloat32Limit = 1e-5;
constexpr double kAgreementLimit = 0.99;

// Logits of every position of every text, one after the other.
struct Logits {
  struct Position {
    bool answer = false;        // the token that these logits choose belongs to an answer
    std::vector<float> values;  // [vocab_size]
  };
  std::vector<Position> positions;
};

int longest(const std::vector<SelftestPrompt>& prompts) {
  std::size_t tokens = 0;
  for (const auto& prompt : prompts) tokens = std::max(tokens, prompt.tokens.size());
  return static_cast<int>(tokens);
}

EngineOptions sized(EngineOptions options, const std::vector<SelftestPrompt>& prompts,
                    DType activations, Recurrence recurrence, int fold_block) {
  options.activations = activations;
  options.recurrence = recurrence;
  options.fold_block = fold_block;
  options.max_running_requests = static_cast<int>(prompts.size());
  options.context_length = longest(prompts) + kContinuation;
  options.step_tokens = std::max(kChunk, options.max_running_requests);
  options.logit_rows = options.step_tokens;
  return options;
}

// Evaluates the prompts in chunks, then one token of each as a batch: those of `continuations`, one
// vector a prompt. Where there are none yet, they are chosen greedily, up to the end of a sequence.
Result<Logits> evaluate(const EngineOptions& options, const std::vector<SelftestPrompt>& prompts,
                        Texts& continuations) {
  auto engine = Engine::create(options);
  if (!engine) return engine.error();
  std::vector<Run> runs;
  std::vector<std::vector<Logits::Position>> logits(prompts.size());
  const LogitsSink keep = [&](const Run& run, int position, std::span<const float> at) {
    const auto n = static_cast<std::size_t>(&run - runs.data());
    const bool continued = static_cast<std::size_t>(position) + 1 >= prompts[n].tokens.size();
    logits[n].push_back({continued && prompts[n].question, {at.begin(), at.end()}});
  };
  runs.reserve(prompts.size());
  for (const auto& prompt : prompts) {
    auto run = start_run(**engine, prompt.tokens);
    if (!run) return run.error();
    runs.push_back(std::move(*run));
    const int tokens = static_cast<int>(prompt.tokens.size());
    REPLAYSSM_TRY(run_chunks(**engine, runs.back(), tokens, kChunk, keep));
  }
  const bool greedy = continuations.empty();
  continuations.resize(prompts.size());
  for (std::size_t i = 0; i < kContinuation; ++i) {
    std::vector<Part> parts;
    for (std::size_t n = 0; n < runs.size(); ++n) {
      if (greedy && continuations[n].size() == i) {
        const TokenId token = argmax(logits[n].back().values);
        if (!(*engine)->config().is_eos(token)) continuations[n].push_back(token);
      }
      if (continuations[n].size() <= i) continue;
      runs[n].sequence.tokens.push_back(continuations[n][i]);
      parts.push_back({&runs[n], 1, Phase::decode});
    }
    if (parts.empty()) break;
    REPLAYSSM_TRY(run_step(**engine, parts, keep));
  }
  Logits all;
  for (auto& text : logits) {
    for (auto& position : text) all.positions.push_back(std::move(position));
  }
  return all;
}

struct Comparison {
  double difference = 0;  // largest, over the largest |logit| of the baseline
  int positions = 0;
  int other_token = 0;   // positions where the largest logit is another token's
  int ties = 0;          // of those, where the baseline's two are closer than `tie`
  int answers = 0;       // positions of answers
  int other_answer = 0;  // of those, with another token
};

Comparison compare(const Logits& baseline, const Logits& other, double tie) {
  Comparison result;
  double largest = 0;
  double difference = 0;
  for (std::size_t p = 0; p < baseline.positions.size(); ++p) {
    const auto& expected = baseline.positions[p].values;
    const auto& found = other.positions[p].values;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double a = expected[i];
      largest = std::max(largest, std::abs(a));
      difference = std::max(difference, std::abs(a - static_cast<double>(found[i])));
    }
  }
  result.difference = difference / largest;
  for (std::size_t p = 0; p < baseline.positions.size(); ++p) {
    const auto& [answer, values] = baseline.positions[p];
    const auto token = static_cast<std::size_t>(argmax(values));
    const auto found = static_cast<std::size_t>(argmax(other.positions[p].values));
    const bool differs = token != found;
    ++result.positions;
    result.other_token += differs ? 1 : 0;
    result.ties += differs && values[token] - values[found] < tie * largest ? 1 : 0;
    result.answers += answer ? 1 : 0;
    result.other_answer += answer && differs ? 1 : 0;
  }
  return result;
}

void add_float32(const std::string& what, const Comparison& c, CheckList& checks) {
  checks.add({what, fmt::format("logits at {} positions", c.positions),
              fmt::format("{:.1e}", c.difference), fmt::format("{:.0e}", kFloat32Limit),
              c.difference <= kFloat32Limit});
  checks.add({what, fmt::format("greedy tokens at {} positions", c.positions),
              fmt::format("{} differ, {} of them ties", c.other_token, c.ties), "none but ties",
              c.other_token == c.ties});
}

std::string shown(const Comparison& c) {
  return fmt::format("{:.1e}, {:.1f} % of tokens equal", c.difference,
                     100.0 * (c.positions - c.other_token) / c.positions);
}

void add_bfloat16(const std::string& what, const Comparison& c, CheckList& checks) {
  checks.add({what, fmt::format("logits at {} positions", c.positions), shown(c), "", true, true});
  if (c.answers == 0) return;
  const double agreement = 1.0 - static_cast<double>(c.other_answer) / c.answers;
  checks.add({what, fmt::format("greedy tokens, {} teacher-forced", c.answers),
              fmt::format("{:.2f} % equal", 100 * agreement),
              fmt::format(">= {:.0f} %", 100 * kAgreementLimit), agreement >= kAgreementLimit});
}

}  // namespace

Status check_closeness(const EngineOptions& options, const std::vector<SelftestPrompt>& prompts,
                       CheckList& checks) {
  Texts continuations;
  const auto run = [&](DType activations, Recurrence recurrence, int fold_block,
                       DType state_type = DType::f32) {
    EngineOptions sizes = sized(options, prompts, activations, recurrence, fold_block);
    sizes.state_type = state_type;
    // A GPU computes in bfloat16.
    if (activations == DType::f32) sizes.device = DeviceKind::cpu;
    return evaluate(sizes, prompts, continuations);
  };
  const auto exact = run(DType::f32, Recurrence::packed, 16);
  if (!exact) return exact.error();
  for (const int fold_block : {8, 16, 32}) {
    if (options.device == DeviceKind::cuda) break;
    const auto replay = run(DType::f32, Recurrence::replay, fold_block);
    if (!replay) return replay.error();
    add_float32(fmt::format("float32: replay off against L = {}", fold_block),
                compare(*exact, *replay, kFloat32Limit), checks);
  }
  const auto rounded = run(DType::bf16, Recurrence::packed, 16);
  if (!rounded) return rounded.error();
  const Comparison rounding = compare(*exact, *rounded, 0);
  checks.add({options.device == DeviceKind::cuda ? "replay off: float32 (cpu) against cuda"
                                                 : "replay off: float32 against bfloat16",
              fmt::format("logits at {} positions", rounding.positions), shown(rounding), "", true,
              true});
  for (const int fold_block : {8, 16, 32}) {
    const auto replay = run(DType::bf16, Recurrence::replay, fold_block);
    if (!replay) return replay.error();
    add_bfloat16(fmt::format("bfloat16: replay off against L = {}", fold_block),
                 compare(*rounded, *replay, 0), checks);
  }
  if (options.state_type == DType::f32) return {};
  for (const Recurrence recurrence : {Recurrence::packed, Recurrence::replay}) {
    const DType activations = options.device == DeviceKind::cuda ? DType::bf16 : DType::f32;
    const auto other = run(activations, recurrence, options.fold_block, options.state_type);
    if (!other) return other.error();
    const Comparison difference = compare(*exact, *other, 0);
    checks.add({fmt::format("{} state, replay {}", name_of(options.state_type),
                            recurrence == Recurrence::packed ? "off" : "on"),
                fmt::format("logits at {} positions", difference.positions), shown(difference), "",
                true, true});
  }
  return {};
}

}  // namespace replayssm::cli
