#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/random_stream.h"

namespace replayssm {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

bool allowed(LogitMask mask, std::size_t token) {
  const std::size_t word = token / 32;
  return word < mask.size() && ((mask[word] >> (token % 32)) & 1u) != 0;
}

}  // namespace

void SamplingState::add_prompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) ++seen_[token].in_prompt;
}

void SamplingState::add_output(TokenId token) {
  ++seen_[token].in_output;
  ++outputs_;
}

TokenId argmax(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<TokenId>(best);
}

Status check_finite(std::span<const float> logits) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  bool finite = true;
  for (const float x : logits) finite &= (std::bit_cast<std::uint32_t>(x) & kExponent) != kExponent;
  if (finite) return {};
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      return Error{fmt::format("logits: {} for token {} is not accepted; expected a finite number",
                               logits[i], i)};
    }
  }
  return {};
}

Result<TokenId> Sampler::sample(std::span<const float> logits, const SamplingState& state,
                                LogitMask mask, LogitBias bias) {
  REPLAYSSM_TRY(check_finite(logits));
  const SamplingParams& params = state.params();
  if (params.penalises() || !mask.empty() || !bias.empty()) {
    adjusted_.assign(logits.begin(), logits.end());
    if (params.penalises()) {
      // Each token's own logit only, so the order of the map does not matter.
      for (const auto& [token, seen] : state.seen_) {
        if (token < 0 || static_cast<std::size_t>(token) >= adjusted_.size()) continue;
        float& logit = adjusted_[static_cast<std::size_t>(token)];
        double x = logit;
        x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
        if (seen.in_output > 0) {
          x -= params.frequency_penalty * seen.in_output + params.presence_penalty;
        }
        logit = static_cast<float>(x);
      }
    }
    for (const auto& [token, added] : bias) {
      if (token < 0 || static_cast<std::size_t>(token) >= adjusted_.size()) continue;
      adjusted_[static_cast<std::size_t>(token)] += added;
    }
    if (!mask.empty()) {
      for (std::size_t i = 0; i < adjusted_.size(); ++i) {
        if (!allowed(mask, i)) adjusted_[i] = kExcluded;
      }
    }
    logits = adjusted_;
  }
  return draw(logits, state);
}

Result<TokenId> Sampler::draw(std::span<const float> logits, const SamplingState& state) {
  const SamplingParams& params = state.params();
  const TokenId best = argmax(logits);
  const float largest = logits[static_cast<std::size_t>(best)];
  if (largest == kExcluded) {
    return Error{"logit mask: no token is allowed; expected at least one"};
  }
  if (params.greedy() || params.top_k == 1) return best;

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kExcluded) continue;
    const double distance = static_cast<double>(logits[i]) - static_cast<double>(largest);
    candidates_.push_back({std::exp(distance / params.temperature), static_cast<TokenId>(i)});
  }
  // Equal weights are ordered by id; logits so far apart that both weights underflow to zero are as
  // good as equal.
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  const auto top_k = static_cast<std::size_t>(params.top_k);
  if (top_k > 0 && top_k < candidates_.size()) {
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(top_k);
    std::nth_element(candidates_.begin(), end - 1, candidates_.end(), more_likely);
    candidates_.erase(end, candidates_.end());
    // nth_element leaves an order of its own; ours must depend on the logits alone.
    std::sort(candidates_.begin(), candidates_.end(), more_likely);
  }
  if (params.top_p < 1.0) {
    double total = 0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;
    // A heap, because the wanted few are found without sorting the whole vocabulary.
    const auto less_likely = [&](const Candidate& a, const Candidate& b) {
      return more_likely(b, a);
    };
    std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
    auto heap_end = candidates_.end();
    double reached = 0;
    while (heap_end != candidates_.begin() && reached < params.top_p * total) {
      std::pop_heap(candidates_.begin(), heap_end, less_likely);
      reached += (--heap_end)->weight;
    }
    candidates_.erase(candidates_.begin(), heap_end);
    std::reverse(candidates_.begin(), candidates_.end());
  }
  if (params.min_p > 0.0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params.min_p; });
  }

  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double wanted = uniform_at(params.seed, state.outputs()) * total;
  double passed = 0;
  TokenId chosen = best;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0.0) continue;
    chosen = candidate.token;
    passed += candidate.weight;
    if (passed > wanted) break;
  }
  return chosen;
}

}  // namespace replayssm
