#include "selftest_closeness.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace replayssm::cli {
namespace {

constexpr int kPrompt = 96;        // tokens of each text that are prefilled
constexpr int kContinuation = 48;  // tokens that follow, chosen greedily by the baseline
constexpr int kChunk = 48;
constexpr double kFloat32Limit = 1e-5;
constexpr double kAgreementLimit = 0.99;

// Logits of every position of every text, one after the other.
struct Logits {
  std::size_t vocab = 0;
  std::vector<std::vector<float>> positions;
};

EngineOptions sized(EngineOptions options, std::size_t texts, DType activations,
                    Recurrence recurrence, int fold_block) {
  options.activations = activations;
  options.recurrence = recurrence;
  options.fold_block = fold_block;
  options.max_running_requests = static_cast<int>(texts);
  options.context_length = kPrompt + kContinuation;
  options.step_tokens = std::max(kChunk, static_cast<int>(texts));
  options.logit_rows = options.step_tokens;
  return options;
}

// Evaluates all texts, their prompts in chunks and the rest as decode steps of one batch. With
// `extend`, each text has only its prompt and is continued greedily.
Result<Logits> evaluate(const EngineOptions& options, Texts& texts, bool extend) {
  auto engine = Engine::create(options);
  if (!engine) return engine.error();
  std::vector<Run> runs;
  std::vector<std::vector<std::vector<float>>> logits(texts.size());
  const LogitsSink keep = [&](const Run& run, int, std::span<const float> at) {
    const auto index = static_cast<std::size_t>(&run - runs.data());
    logits[index].emplace_back(at.begin(), at.end());
  };
  runs.reserve(texts.size());
  for (const auto& text : texts) {
    auto run = start_run(**engine, text);
    if (!run) return run.error();
    runs.push_back(std::move(*run));
    REPLAYSSM_TRY(run_chunks(**engine, runs.back(), kPrompt, kChunk, keep));
  }
  for (int i = 0; i < kContinuation; ++i) {
    std::vector<Part> parts;
    for (std::size_t n = 0; n < runs.size(); ++n) {
      if (extend) {
        texts[n].push_back(argmax(logits[n].back()));
        runs[n].sequence.tokens.push_back(texts[n].back());
      }
      parts.push_back({&runs[n], 1, Phase::decode});
    }
    REPLAYSSM_TRY(run_step(**engine, parts, keep));
  }
  Logits all;
  all.vocab = static_cast<std::size_t>((*engine)->config().vocab_size);
  for (auto& text : logits) {
    for (auto& position : text) all.positions.push_back(std::move(position));
  }
  return all;
}

struct Comparison {
  double difference = 0;  // largest, over the largest |logit| of the baseline
  int positions = 0;
  int same_token = 0;
  int ties = 0;  // other token, but the baseline's two best are closer than `tie`
};

Comparison compare(const Logits& baseline, const Logits& other, double tie) {
  Comparison result;
  double largest = 0;
  double difference = 0;
  for (std::size_t p = 0; p < baseline.positions.size(); ++p) {
    for (std::size_t i = 0; i < baseline.vocab; ++i) {
      const double a = baseline.positions[p][i];
      largest = std::max(largest, std::abs(a));
      difference = std::max(difference, std::abs(a - static_cast<double>(other.positions[p][i])));
    }
  }
  result.difference = difference / largest;
  for (std::size_t p = 0; p < baseline.positions.size(); ++p) {
    const auto& a = baseline.positions[p];
    ++result.positions;
    const TokenId token = argmax(a);
    const TokenId found = argmax(other.positions[p]);
    if (token == found) {
      ++result.same_token;
    } else if (a[static_cast<std::size_t>(token)] - a[static_cast<std::size_t>(found)] <
               tie * largest) {
      ++result.ties;
    }
  }
  return result;
}

void add_float32(const std::string& what, const Comparison& c, std::vector<Check>& checks) {
  checks.push_back({what, fmt::format("logits at {} positions", c.positions),
                    fmt::format("{:.1e}", c.difference), fmt::format("{:.0e}", kFloat32Limit),
                    c.difference <= kFloat32Limit});
  checks.push_back({what, "greedy tokens",
                    fmt::format("{} of {} equal, {} ties", c.same_token, c.positions, c.ties),
                    "equal, or ties", c.same_token + c.ties == c.positions});
}

void add_bfloat16(const std::string& what, const Comparison& c, std::vector<Check>& checks) {
  const double agreement = static_cast<double>(c.same_token) / c.positions;
  checks.push_back({what, fmt::format("logits at {} positions", c.positions),
                    fmt::format("{:.1e}", c.difference), "shown only", true});
  checks.push_back({what, "teacher-forced greedy tokens", fmt::format("{:.2f} %", 100 * agreement),
                    fmt::format(">= {:.0f} %", 100 * kAgreementLimit),
                    agreement >= kAgreementLimit});
}

}  // namespace

Status check_closeness(const EngineOptions& options, const Texts& texts,
                       std::vector<Check>& checks) {
  Texts prompts;
  for (const auto& text : texts) prompts.emplace_back(text.begin(), text.begin() + kPrompt);
  for (const DType activations : {DType::f32, DType::bf16}) {
    Texts continued = prompts;
    const auto baseline = evaluate(
        sized(options, texts.size(), activations, Recurrence::packed, 16), continued, true);
    if (!baseline) return baseline.error();
    for (const int fold_block : {8, 16, 32}) {
      const auto replay =
          evaluate(sized(options, texts.size(), activations, Recurrence::replay, fold_block),
                   continued, false);
      if (!replay) return replay.error();
      const Comparison c = compare(*baseline, *replay, kFloat32Limit);
      const std::string what =
          fmt::format("{}: replay off against L = {}", name_of(activations), fold_block);
      if (activations == DType::f32) {
        add_float32(what, c, checks);
      } else {
        add_bfloat16(what, c, checks);
      }
    }
  }
  return {};
}

}  // namespace replayssm::cli
