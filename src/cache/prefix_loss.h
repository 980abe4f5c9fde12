// Why fewer tokens of a prompt were reused than the cache knows.
#pragma once

#include <array>
#include <string_view>

namespace replayssm {

enum class PrefixLoss {
  no_state,         // keys and values reach further than any checkpoint at hand
  tail,             // the match ends inside an entry's records, which only its own end can resume
  evicted,          // what would have served was evicted
  prompt_logprobs,  // the whole prompt had to be evaluated
};
inline constexpr std::array kPrefixLosses = {PrefixLoss::no_state, PrefixLoss::tail,
                                             PrefixLoss::evicted, PrefixLoss::prompt_logprobs};

std::string_view name_of(PrefixLoss loss);

}  // namespace replayssm
