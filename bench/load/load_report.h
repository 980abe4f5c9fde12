// The numbers of a load test, for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/load_run.h"

namespace replayssm::load {

// Over a set of observations; all 0 for none.
struct Spread {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// Percentiles by linear interpolation between the two nearest observations (as numpy's default).
Spread spread_of(std::vector<double> values);

struct LoadSummary {
  int completed = 0;
  int failed = 0;
  std::vector<std::pair<std::string, int>> errors;  // message and how often, in order of appearance
  double seconds = 0;
  bool interrupted = false;
  // Of completed requests.
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  // Milliseconds.
  Spread first_token;    // to the first text
  Spread between_texts;  // between two texts of an answer, which may hold several tokens each
  Spread each_token;     // (last text - first text) / (completion tokens - 1), by request
  Spread whole_request;
};

LoadSummary summary_of(const LoadResult& result);

std::string to_text(const LoadOptions& options, const LoadSummary& summary);
nlohmann::ordered_json to_json(const LoadOptions& options, const LoadSummary& summary);

}  // namespace replayssm::load
