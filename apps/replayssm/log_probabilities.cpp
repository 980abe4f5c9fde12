#include "log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "selftest_run.h"

namespace replayssm::cli {
namespace {

double log_probability(std::span<const float> logits, TokenId token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return logits[static_cast<std::size_t>(token)] - largest - std::log(sum);
}

}  // namespace

Result<std::vector<std::vector<double>>> log_probabilities(
    const EngineOptions& options, std::span<const GivenAnswer> answers,
    const std::function<bool(std::size_t)>& finished) {
  std::size_t longest = 1;
  for (const GivenAnswer& each : answers) longest = std::max(longest, each.tokens.size());
  EngineOptions alone = options;
  alone.max_running_requests = 1;
  alone.context_length = static_cast<int>(longest);
  alone.step_tokens = alone.logit_rows = alone.context_length;
  auto engine = Engine::create(alone);
  if (!engine) return engine.error();

  std::vector<std::vector<double>> all;
  for (const GivenAnswer& each : answers) {
    auto run = start_run(**engine, each.tokens);
    if (!run) return run.error();
    std::vector<double>& found = all.emplace_back();
    // The last token is chosen by the logits before it and need not be evaluated.
    const int until = static_cast<int>(each.tokens.size()) - 1;
    REPLAYSSM_TRY(run_chunks(**engine, *run, until, 0,
                             [&](const Run&, int position, std::span<const float> logits) {
                               const auto next = static_cast<std::size_t>(position) + 1;
                               if (next < each.prompt) return;
                               found.push_back(log_probability(logits, each.tokens[next]));
                             }));
    if (!finished(all.size())) return Error{"interrupted"};
  }
  return all;
}

LogProbabilityDifference compare_log_probabilities(std::span<const std::vector<double>> expected,
                                                   std::span<const std::vector<double>> found) {
  LogProbabilityDifference result;
  for (std::size_t answer = 0; answer < expected.size(); ++answer) {
    for (std::size_t i = 0; i < expected[answer].size(); ++i) {
      const double difference = std::abs(expected[answer][i] - found[answer][i]);
      ++result.tokens;
      result.mean_expected += expected[answer][i];
      result.mean_found += found[answer][i];
      result.mean_difference += difference;
      result.largest_difference = std::max(result.largest_difference, difference);
    }
  }
  const double count = static_cast<double>(std::max<std::int64_t>(result.tokens, 1));
  result.mean_expected /= count;
  result.mean_found /= count;
  result.mean_difference /= count;
  return result;
}

}  // namespace replayssm::cli
