// How large a step may be.
#pragma once

#include <limits>

namespace replayssm {

// The largest step; forward's workspace and the logits buffer are sized by it.
struct StepLimits {
  int tokens = 1;
  int logit_rows = 1;
  int chunk = std::numeric_limits<int>::max();  // of one prompt, within `tokens`
};

}  // namespace replayssm
