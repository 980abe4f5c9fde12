#include "load/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace replayssm::load {
namespace {

double percentile(const std::vector<double>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

void count_error(std::vector<std::pair<std::string, int>>& errors, const std::string& message) {
  const auto found = std::find_if(errors.begin(), errors.end(),
                                  [&](const auto& each) { return each.first == message; });
  if (found == errors.end()) {
    errors.emplace_back(message, 1);
  } else {
    ++found->second;
  }
}

std::string line(std::string_view name, const Spread& spread) {
  return fmt::format("{:<24}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", name, spread.mean,
                     spread.p50, spread.p90, spread.p99, spread.max);
}

nlohmann::ordered_json json_of(const Spread& spread) {
  return {{"mean", spread.mean},
          {"p50", spread.p50},
          {"p90", spread.p90},
          {"p99", spread.p99},
          {"max", spread.max}};
}

std::string_view name_of(Endpoint endpoint) {
  return endpoint == Endpoint::chat ? "chat" : "completions";
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), percentile(values, 0.5),
          percentile(values, 0.9), percentile(values, 0.99), values.back()};
}

LoadSummary summary_of(const LoadResult& result) {
  constexpr double kMilliseconds = 1000;
  LoadSummary summary;
  summary.seconds = result.seconds;
  summary.interrupted = result.interrupted;
  std::vector<double> first, between, each, whole;
  for (const LoadSample& sample : result.samples) {
    if (!sample.error.empty()) {
      ++summary.failed;
      count_error(summary.errors, sample.error);
      continue;
    }
    ++summary.completed;
    summary.prompt_tokens += sample.prompt_tokens;
    summary.cached_tokens += sample.cached_tokens;
    summary.completion_tokens += sample.completion_tokens;
    whole.push_back(kMilliseconds * sample.total);
    if (sample.first <= 0) continue;  // an answer without text
    first.push_back(kMilliseconds * sample.first);
    for (const double gap : sample.gaps) between.push_back(kMilliseconds * gap);
    if (sample.completion_tokens > 1) {
      each.push_back(kMilliseconds * (sample.last - sample.first) / (sample.completion_tokens - 1));
    }
  }
  summary.first_token = spread_of(std::move(first));
  summary.between_texts = spread_of(std::move(between));
  summary.each_token = spread_of(std::move(each));
  summary.whole_request = spread_of(std::move(whole));
  return summary;
}

std::string to_text(const LoadOptions& options, const LoadSummary& summary) {
  std::string text = fmt::format("{} of {} requests completed, {} failed, {} at a time, {:.2f} s\n",
                                 summary.completed, options.prompts.size(), summary.failed,
                                 options.concurrency, summary.seconds);
  for (const auto& [message, count] : summary.errors) {
    text += fmt::format("  {} x {}\n", count, message);
  }
  const auto prompt = static_cast<double>(summary.prompt_tokens);
  const auto output = static_cast<double>(summary.completion_tokens);
  text += fmt::format("{:<24}{:>10.2f} a second\n", "requests",
                      per_second(summary.completed, summary.seconds));
  text += fmt::format("{:<24}{:>10.1f} tokens a second, {} in all\n", "output",
                      per_second(output, summary.seconds), summary.completion_tokens);
  text += fmt::format("{:<24}{:>10.1f} tokens a second, {} in all, {} reused\n", "prompts",
                      per_second(prompt, summary.seconds), summary.prompt_tokens,
                      summary.cached_tokens);
  text += fmt::format("{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "mean", "p50",
                      "p90", "p99", "max");
  text += line("time to first token", summary.first_token);
  text += line("inter-token latency", summary.between_texts);
  text += line("time per output token", summary.each_token);
  text += line("whole request", summary.whole_request);
  return text;
}

nlohmann::ordered_json to_json(const LoadOptions& options, const LoadSummary& summary) {
  nlohmann::ordered_json json;
  json["url"] = "http://" + options.url.authority() + options.url.path;
  json["model"] = options.model;
  json["endpoint"] = name_of(options.endpoint);
  json["requests"] = options.prompts.size();
  json["concurrency"] = options.concurrency;
  json["max_tokens"] = options.max_tokens;
  json["completed"] = summary.completed;
  json["failed"] = summary.failed;
  json["interrupted"] = summary.interrupted;
  nlohmann::ordered_json errors = nlohmann::ordered_json::array();
  for (const auto& [message, count] : summary.errors) {
    errors.push_back({{"message", message}, {"count", count}});
  }
  json["errors"] = std::move(errors);
  json["seconds"] = summary.seconds;
  json["prompt_tokens"] = summary.prompt_tokens;
  json["cached_tokens"] = summary.cached_tokens;
  json["completion_tokens"] = summary.completion_tokens;
  json["requests_per_second"] = per_second(summary.completed, summary.seconds);
  json["output_tokens_per_second"] =
      per_second(static_cast<double>(summary.completion_tokens), summary.seconds);
  json["total_tokens_per_second"] = per_second(
      static_cast<double>(summary.prompt_tokens + summary.completion_tokens), summary.seconds);
  json["time_to_first_token_ms"] = json_of(summary.first_token);
  json["inter_token_latency_ms"] = json_of(summary.between_texts);
  json["time_per_output_token_ms"] = json_of(summary.each_token);
  json["request_latency_ms"] = json_of(summary.whole_request);
  return json;
}

}  // namespace replayssm::load
