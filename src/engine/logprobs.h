// Log-probabilities of tokens, as requests ask for them.
#pragma once

#include <span>
#include <vector>

#include "core/strong_id.h"

namespace replayssm {

// Natural logarithms, of the model's distribution before penalties, temperature and masks.
struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;
};

struct TokenLogprobs {
  double logprob = 0;             // of the token itself
  std::vector<TokenLogprob> top;  // the most likely tokens, most likely first, smaller ids first
};

// log softmax(logits)[token], and the `top` largest. Sums in double, in ascending order of ids.
// Precondition: logits [vocab_size] are finite, token < vocab_size.
TokenLogprobs token_logprobs(std::span<const float> logits, TokenId token, int top);

}  // namespace replayssm
