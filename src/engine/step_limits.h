// How large a step may be.
#pragma once

namespace replayssm {

// The largest step; forward's workspace and the logits buffer are sized by it.
struct StepLimits {
  int tokens = 1;
  int chunk = 1;  // of them, tokens of one prompt
  int logit_rows = 1;
};

}  // namespace replayssm
