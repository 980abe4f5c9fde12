#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace replayssm {

TokenLogprobs token_logprobs(std::span<const float> logits, TokenId token, int top) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double normaliser = largest + std::log(sum);
  const auto logprob = [&](TokenId id) {
    return logits[static_cast<std::size_t>(id)] - normaliser;
  };

  TokenLogprobs result;
  result.logprob = logprob(token);
  const auto count = std::min(static_cast<std::size_t>(std::max(top, 0)), logits.size());
  if (count == 0) return result;
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), TokenId{0});
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](TokenId a, TokenId b) {
                      const float x = logits[static_cast<std::size_t>(a)];
                      const float y = logits[static_cast<std::size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (std::size_t i = 0; i < count; ++i) result.top.push_back({ids[i], logprob(ids[i])});
  return result;
}

}  // namespace replayssm
