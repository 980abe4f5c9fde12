// How many drafts of each request are worth verifying. Source: DSpark's prefix scheduler
// (arXiv 2607.05147).
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "core/result.h"
#include "spec/drafter.h"

namespace replayssm {

// Steps a second of the target by the tokens of a step.
class StepRates {
 public:
  struct Point {
    int tokens = 0;
    double steps_per_second = 0;
  };

  // Ascending by tokens, at least one, rates above 0. More tokens never count as faster: a rate is
  // at most that of the point before.
  static Result<StepRates> make(std::vector<Point> points);
  // A JSON object of tokens and steps a second: {"1": 90.5, "8": 70}.
  static Result<StepRates> read(const std::filesystem::path& file);

  // The time of a step is linear between points; past the last one it grows with the tokens, before
  // the first one it is the first one's.
  double at(int tokens) const;

  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
};

// Drafts to verify of each request, each at most as many as it has. With a_rj the product of the
// confidences of request r's drafts 1 .. j, drafts are taken in descending order of a_rj (ties: by
// place, then request) as long as (requests + sum of a taken) * rate(requests + drafts taken)
// grows.
//
// Whether a draft is taken depends on confidences up to its own alone, which were known before it
// was drawn, since the first fall ends it: so the output's distribution stays the target's.
std::vector<int> prefix_lengths(std::span<const DraftRequest> requests, const StepRates& rates);

// Drops each request's drafts from the first on whose confidence is below `threshold`.
void cut_at_threshold(std::span<DraftRequest> requests, double threshold);

}  // namespace replayssm
