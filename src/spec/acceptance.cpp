#include "spec/acceptance.h"

#include <algorithm>

#include "core/random_stream.h"

namespace replayssm {
namespace {

constexpr double kLeast = 1e-8;  // probabilities below are rounding

// Each use of a request's seed has a stream of its own.
constexpr std::uint64_t kAcceptanceStream = 0xacce'97ed;
constexpr std::uint64_t kDraftStream = 0xd4af'7ed0;

constexpr std::uint64_t stream_seed(std::uint64_t seed, std::uint64_t stream) {
  return mix_bits(seed ^ mix_bits(stream));
}

double probability(const TokenDistribution& distribution, TokenId token) {
  for (const TokenDistribution::Entry& entry : distribution.entries) {
    if (entry.token == token) return entry.weight / distribution.total;
  }
  return 0.0;
}

// max(p - q, 0), in p's order.
TokenDistribution residual(const TokenDistribution& p, const TokenDistribution& q) {
  TokenDistribution rest;
  for (const TokenDistribution::Entry& entry : p.entries) {
    const double weight = std::max(0.0, entry.weight / p.total - probability(q, entry.token));
    rest.entries.push_back({entry.token, weight});
    rest.total += weight;
  }
  return rest;
}

}  // namespace

std::uint64_t draft_seed(std::uint64_t seed) { return stream_seed(seed, kDraftStream); }

TokenId output_token(const TokenDistribution& target, const Draft& draft, std::uint64_t seed,
                     std::uint64_t index) {
  const double uniform = uniform_at(seed, index);
  if (draft.distribution.entries.empty()) return draw(target, uniform);

  const double p = probability(target, draft.token);
  const double q = std::max(probability(draft.distribution, draft.token), kLeast);
  if (uniform_at(stream_seed(seed, kAcceptanceStream), index) < p / q) return draft.token;
  const TokenDistribution rest = residual(target, draft.distribution);
  return draw(rest.total > kLeast ? rest : target, uniform);
}

}  // namespace replayssm
