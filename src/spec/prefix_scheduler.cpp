#include "spec/prefix_scheduler.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "model/json_file.h"

namespace replayssm {

Result<StepRates> StepRates::make(std::vector<Point> points) {
  if (points.empty()) return Error{"step rates: none; expected at least one"};
  StepRates rates;
  for (const Point& point : points) {
    const int least = rates.points_.empty() ? 1 : rates.points_.back().tokens + 1;
    if (point.tokens < least) {
      return refuse("step rates: tokens", point.tokens,
                    fmt::format("ascending, {} or more", least));
    }
    if (!(point.steps_per_second > 0)) {
      return refuse(fmt::format("step rates: steps a second with {} tokens", point.tokens),
                    point.steps_per_second, "a number above 0");
    }
    const double most =
        rates.points_.empty() ? point.steps_per_second : rates.points_.back().steps_per_second;
    rates.points_.push_back({point.tokens, std::min(point.steps_per_second, most)});
  }
  return rates;
}

Result<StepRates> StepRates::read(const std::filesystem::path& file) {
  const auto object = read_json_object(file);
  if (!object) return object.error();
  std::vector<Point> points;
  for (const auto& [key, value] : object->items()) {
    int tokens = 0;
    const char* end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data(), end, tokens);
    if (error != std::errc{} || stop != end || !value.is_number()) {
      return refuse(fmt::format("{}: {}", file.string(), key), describe(value),
                    "tokens of a step and steps a second");
    }
    points.push_back({tokens, value.get<double>()});
  }
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.tokens < b.tokens; });
  return make(std::move(points));
}

double StepRates::at(int tokens) const {
  if (tokens <= points_.front().tokens) return points_.front().steps_per_second;
  const Point& last = points_.back();
  if (tokens >= last.tokens) return last.steps_per_second * last.tokens / tokens;
  const auto above = std::upper_bound(points_.begin(), points_.end(), tokens,
                                      [](int t, const Point& p) { return t < p.tokens; });
  const auto below = above - 1;
  const double share =
      static_cast<double>(tokens - below->tokens) / (above->tokens - below->tokens);
  return 1.0 / ((1.0 - share) / below->steps_per_second + share / above->steps_per_second);
}

std::vector<int> prefix_lengths(std::span<const DraftRequest> requests, const StepRates& rates) {
  struct Candidate {
    double accepted;  // how likely this draft and all before it are
    int place;
    std::size_t request;
  };
  std::vector<Candidate> candidates;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    double accepted = 1.0;
    int place = 0;
    for (const Draft& draft : requests[r].drafts) {
      accepted *= draft.confidence;
      candidates.push_back({accepted, ++place, r});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(-a.accepted, a.place, a.request) <
           std::tuple(-b.accepted, b.place, b.request);
  });
  std::vector<int> lengths(requests.size(), 0);
  int tokens = static_cast<int>(requests.size());
  double expected = tokens;
  double best = expected * rates.at(tokens);
  for (const Candidate& candidate : candidates) {
    ++tokens;
    expected += candidate.accepted;
    const double rate = expected * rates.at(tokens);
    if (rate <= best) break;
    best = rate;
    lengths[candidate.request] = candidate.place;
  }
  return lengths;
}

void cut_at_threshold(std::span<DraftRequest> requests, double threshold) {
  for (DraftRequest& request : requests) {
    const auto unsure = std::find_if(request.drafts.begin(), request.drafts.end(),
                                     [&](const Draft& d) { return d.confidence < threshold; });
    request.drafts.erase(unsure, request.drafts.end());
  }
}

}  // namespace replayssm
