#include "spec/draft_chooser.h"

#include <algorithm>
#include <cmath>

#include "core/random_stream.h"
#include "spec/acceptance.h"

namespace replayssm {
namespace {

// The rest would hardly be accepted, and a distribution is searched for every token of the
// target's.
constexpr int kMostCandidates = 64;

}  // namespace

void DraftChooser::append_drawn(DraftRequest& request, const TokenDistribution& distribution) {
  const std::uint64_t index = request.outputs + request.drafts.size();
  const TokenId token = draw(distribution, uniform_at(draft_seed(request.sampling->seed), index));
  request.drafts.push_back({token, distribution});
}

bool DraftChooser::choose(DraftRequest& request, std::span<const float> logits) {
  if (!check_finite(logits).ok()) return false;
  if (!draws(request)) {
    request.drafts.push_back({argmax(logits), {}});
    return true;
  }
  SamplingParams params = *request.sampling;
  params.top_k = params.top_k == 0 ? kMostCandidates : std::min(params.top_k, kMostCandidates);
  params.repetition_penalty = 1.0;
  params.presence_penalty = params.frequency_penalty = 0.0;
  const auto distribution = sampler_.distribution(logits, SamplingState(params));
  if (!distribution) return false;
  append_drawn(request, **distribution);
  return true;
}

bool DraftChooser::choose(DraftRequest& request, TokenId best) {
  if (best < 0) return false;
  request.drafts.push_back({best, {}});
  return true;
}

bool DraftChooser::choose(DraftRequest& request, std::span<const DraftCandidate> candidates) {
  const auto finite = [](const DraftCandidate& each) { return std::isfinite(each.score); };
  if (candidates.empty() || !std::all_of(candidates.begin(), candidates.end(), finite)) {
    return false;
  }
  const auto best = std::max_element(
      candidates.begin(), candidates.end(),
      [](const DraftCandidate& a, const DraftCandidate& b) { return a.score < b.score; });
  if (!draws(request)) {
    request.drafts.push_back({best->token, {}});
    return true;
  }
  among_.entries.clear();
  among_.total = 0;
  for (const DraftCandidate& each : candidates) {
    const double weight =
        std::exp((double{each.score} - best->score) / request.sampling->temperature);
    among_.entries.push_back({each.token, weight});
    among_.total += weight;
  }
  append_drawn(request, among_);
  return true;
}

}  // namespace replayssm
