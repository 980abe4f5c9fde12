// Log-probabilities of tokens, as requests ask for them.
#pragma once

#include <span>

#include "core/strong_id.h"
#include "model/token_choice.h"

namespace replayssm {

// log softmax(logits)[token], and the `top` largest. Sums in double, in ascending order of ids.
// Precondition: logits [vocab_size] are finite, token < vocab_size.
TokenLogprobs token_logprobs(std::span<const float> logits, TokenId token, int top);

}  // namespace replayssm
