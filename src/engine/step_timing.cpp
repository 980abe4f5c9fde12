#include "engine/step_timing.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace replayssm {
namespace {

constexpr int kRepeats = 3;  // of which the fastest counts
constexpr TokenId kAnyToken = 0;

// Sizes of steps that are timed: every one up to 4, then half as much again.
std::vector<int> timed_sizes(int most) {
  std::vector<int> sizes;
  for (int tokens = 1; tokens < most; tokens = tokens < 4 ? tokens + 1 : tokens + tokens / 2) {
    sizes.push_back(tokens);
  }
  sizes.push_back(most);
  return sizes;
}

// A sequence that has evaluated one token.
Result<Sequence> begin_sequence(Engine& engine) {
  auto sequence = engine.admit({kAnyToken}, SamplingParams{});
  if (!sequence) return sequence.error();
  const StepRow row = Engine::next_row(*sequence, 1);
  REPLAYSSM_TRY(engine.prepare(row));
  const auto result = engine.step({&row, 1});
  if (!result) return result.error();
  if (result->front().error) return *result->front().error;
  return sequence;
}

// Seconds of a step of so many tokens, spread over the fewest sequences; nothing is committed.
Result<double> time_step(Engine& engine, std::vector<Sequence>& sequences, int tokens) {
  const int window = engine.most_drafts() + 1;
  const std::vector<Draft> drafts(static_cast<std::size_t>(window), Draft{kAnyToken, {}});
  std::vector<StepRow> rows;
  for (Sequence& sequence : sequences) {
    const int own = std::min(tokens, window);
    if (own == 0) break;
    StepRow row{&sequence, own, own > 1 ? Phase::verify : Phase::decode, own};
    row.drafts = std::span(drafts).first(static_cast<std::size_t>(own - 1));
    REPLAYSSM_TRY(engine.prepare(row));
    rows.push_back(row);
    tokens -= own;
  }
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto logits = engine.runner().evaluate(rows);
    if (!logits) return logits.error();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fastest = std::min(fastest, took.count());
  }
  return fastest;
}

}  // namespace

Result<StepRates> measure_step_rates(Engine& engine) {
  std::vector<Sequence> sequences;
  for (int i = 0; i < engine.plan().rows; ++i) {
    auto sequence = begin_sequence(engine);
    if (!sequence) return sequence.error();
    sequences.push_back(std::move(*sequence));
  }
  std::vector<StepRates::Point> points;
  const int most = static_cast<int>(sequences.size()) * (engine.most_drafts() + 1);
  for (const int tokens : timed_sizes(most)) {
    const auto seconds = time_step(engine, sequences, tokens);
    if (!seconds) return seconds.error();
    points.push_back({tokens, 1.0 / std::max(*seconds, 1e-9)});
  }
  return StepRates::make(std::move(points));
}

}  // namespace replayssm
