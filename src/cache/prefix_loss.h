// Why fewer tokens of a prompt were reused than the cache knows.
#pragma once

#include <string_view>

namespace replayssm {

enum class PrefixLoss {
  no_state,         // keys and values reach further than any checkpoint at hand
  tail,             // the match ends inside an entry's records, which only its own end can resume
  evicted,          // what would have served was evicted
  format,           // an entry made with other formats
  prompt_logprobs,  // the whole prompt had to be evaluated
};
inline constexpr int kPrefixLosses = 5;

std::string_view name_of(PrefixLoss loss);

}  // namespace replayssm
