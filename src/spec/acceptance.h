// Whether a draft becomes output. Sources: Leviathan et al., Fast inference from transformers via
// speculative decoding (ICML 2023); Chen et al., Accelerating large language model decoding with
// speculative sampling (arXiv 2302.01318).
#pragma once

#include <cstdint>

#include "spec/draft.h"

namespace replayssm {

// The output token at a position for which there is a draft. The draft is accepted if it is that
// token; whatever the draft, the token is distributed as `target`, the distribution that plain
// decoding would draw from there (penalties, bias and masks of the position's own prefix applied).
//
//   point mass    the token that plain decoding draws: draw(target, uniform_at(seed, index)). The
//                 output is plain decoding's token for token, greedy or not.
//   distribution  with p = target, q = the draft's: the draft with probability min(1, p / q),
//                 otherwise a token drawn from max(p - q, 0), normalised. Where less than 1e-8 of
//                 that is left, from p.
//
// `seed` and `index`: of the request and the output token, as in Sampler.
TokenId output_token(const TokenDistribution& target, const Draft& draft, std::uint64_t seed,
                     std::uint64_t index);

// Seed of the random numbers by which a drafter draws; independent of those of the acceptance.
std::uint64_t draft_seed(std::uint64_t seed);

}  // namespace replayssm
