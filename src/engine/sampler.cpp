#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/random_stream.h"
#include "engine/logprobs.h"

namespace replayssm {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

bool allowed(LogitMask mask, std::size_t token) {
  const std::size_t word = token / 32;
  return word < mask.size() && ((mask[word] >> (token % 32)) & 1u) != 0;
}

float penalised(float logit, int in_output, const TokenChoice& choice) {
  double x = logit;
  x = x > 0 ? x / choice.repetition_penalty : x * choice.repetition_penalty;
  if (in_output > 0) x -= choice.frequency_penalty * in_output + choice.presence_penalty;
  return static_cast<float>(x);
}

}  // namespace

void SamplingState::add_prompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) seen_.try_emplace(token);
}

void SamplingState::add_output(TokenId token) {
  ++seen_[token];
  ++outputs_;
}

TokenChoice SamplingState::choice(std::uint64_t index, std::vector<SeenToken>& seen) const {
  TokenChoice choice;
  choice.temperature = params_.temperature;
  choice.top_k = params_.top_k;
  choice.top_p = params_.top_p;
  choice.min_p = params_.min_p;
  choice.repetition_penalty = params_.repetition_penalty;
  choice.presence_penalty = params_.presence_penalty;
  choice.frequency_penalty = params_.frequency_penalty;
  choice.uniform = uniform_at(params_.seed, index);
  seen.clear();
  if (choice.penalises()) {
    for (const auto& [token, in_output] : seen_) seen.push_back({token, in_output});
  }
  choice.seen = seen;
  return choice;
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

TokenId draw(const TokenDistribution& distribution, double uniform) {
  const double wanted = uniform * distribution.total;
  double passed = 0;
  TokenId chosen = distribution.entries.front().token;
  for (const TokenDistribution::Entry& entry : distribution.entries) {
    if (entry.weight == 0.0) continue;
    chosen = entry.token;
    passed += entry.weight;
    if (passed > wanted) break;
  }
  return chosen;
}

Result<TokenId> Sampler::sample(std::span<const float> logits, const SamplingState& state,
                                LogitMask mask, LogitBias bias) {
  const auto target = distribution(logits, state, mask, bias);
  if (!target) return target.error();
  return draw(**target, uniform_at(state.params().seed, state.outputs()));
}

Result<const TokenDistribution*> Sampler::distribution(std::span<const float> logits,
                                                       const SamplingState& state, LogitMask mask,
                                                       LogitBias bias) {
  TokenChoice choice = state.choice(state.outputs(), seen_);
  choice.mask = mask;
  choice.bias = bias;
  return distribution(logits, choice);
}

Result<const TokenDistribution*> Sampler::distribution(std::span<const float> logits,
                                                       const TokenChoice& choice) {
  REPLAYSSM_TRY(check_finite(logits));
  if (choice.penalises() || !choice.mask.empty() || !choice.bias.empty()) {
    adjusted_.assign(logits.begin(), logits.end());
    // Each token's own logit only, so the order does not matter.
    for (const SeenToken& seen : choice.seen) {
      if (seen.token < 0 || static_cast<std::size_t>(seen.token) >= adjusted_.size()) continue;
      float& logit = adjusted_[static_cast<std::size_t>(seen.token)];
      logit = penalised(logit, seen.in_output, choice);
    }
    for (const auto& [token, added] : choice.bias) {
      if (token < 0 || static_cast<std::size_t>(token) >= adjusted_.size()) continue;
      adjusted_[static_cast<std::size_t>(token)] += added;
    }
    // What is finite alone may leave float32 with a penalty or a bias.
    REPLAYSSM_TRY(check_finite(adjusted_));
    if (!choice.mask.empty()) {
      for (std::size_t i = 0; i < adjusted_.size(); ++i) {
        if (!allowed(choice.mask, i)) adjusted_[i] = kExcluded;
      }
    }
    logits = adjusted_;
  }
  REPLAYSSM_TRY(cut_off(logits, choice));
  return &distribution_;
}

ChosenToken Sampler::choose(std::span<const float> logits, const TokenChoice& choice) {
  ChosenToken chosen;
  if (Status finite = check_finite(logits); !finite) {
    chosen.finite = false;
    chosen.error = finite.error();
    return chosen;
  }
  const auto target = distribution(logits, choice);
  if (!target) {
    chosen.error = target.error();
    return chosen;
  }
  chosen.token = draw(**target, choice.uniform);
  if (choice.top_logprobs) {
    const TokenId token = choice.logprobs_of >= 0 ? choice.logprobs_of : chosen.token;
    chosen.logprobs = token_logprobs(logits, token, *choice.top_logprobs);
  }
  return chosen;
}

// Temperature and what follows it, up to the draw.
Status Sampler::cut_off(std::span<const float> logits, const TokenChoice& choice) {
  std::vector<TokenDistribution::Entry>& candidates = distribution_.entries;
  candidates.clear();
  const TokenId best = argmax(logits);
  const float largest = logits[static_cast<std::size_t>(best)];
  if (largest == kExcluded) {
    return Error{"logit mask: no token is allowed; expected at least one"};
  }
  if (choice.greedy()) {
    candidates.push_back({best, 1.0});
    distribution_.total = 1.0;
    return {};
  }

  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kExcluded) continue;
    const double distance = static_cast<double>(logits[i]) - static_cast<double>(largest);
    candidates.push_back({static_cast<TokenId>(i), std::exp(distance / choice.temperature)});
  }
  // Equal weights are ordered by id; logits so far apart that both weights underflow to zero are as
  // good as equal.
  const auto more_likely = [](const TokenDistribution::Entry& a,
                              const TokenDistribution::Entry& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  const auto top_k = static_cast<std::size_t>(choice.top_k);
  if (top_k > 0 && top_k < candidates.size()) {
    const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(top_k);
    std::nth_element(candidates.begin(), end - 1, candidates.end(), more_likely);
    candidates.erase(end, candidates.end());
    // nth_element leaves an order of its own; ours must depend on the logits alone.
    std::sort(candidates.begin(), candidates.end(), more_likely);
  }
  if (choice.top_p < 1.0) {
    double total = 0;
    for (const TokenDistribution::Entry& candidate : candidates) total += candidate.weight;
    // A heap, because the wanted few are found without sorting the whole vocabulary.
    const auto less_likely = [&](const TokenDistribution::Entry& a,
                                 const TokenDistribution::Entry& b) { return more_likely(b, a); };
    std::make_heap(candidates.begin(), candidates.end(), less_likely);
    auto heap_end = candidates.end();
    double reached = 0;
    while (heap_end != candidates.begin() && reached < choice.top_p * total) {
      std::pop_heap(candidates.begin(), heap_end, less_likely);
      reached += (--heap_end)->weight;
    }
    candidates.erase(candidates.begin(), heap_end);
    std::reverse(candidates.begin(), candidates.end());
  }
  if (choice.min_p > 0.0) {
    std::erase_if(candidates,
                  [&](const TokenDistribution::Entry& c) { return c.weight < choice.min_p; });
  }

  distribution_.total = 0;
  for (const TokenDistribution::Entry& candidate : candidates) {
    distribution_.total += candidate.weight;
  }
  return {};
}

}  // namespace replayssm
