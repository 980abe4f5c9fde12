// A token that a drafter proposes.
#pragma once

#include "core/strong_id.h"
#include "engine/sampler.h"

namespace replayssm {

struct Draft {
  TokenId token = 0;
  // What the token was drawn from: over the target's ids, without padding. No entries: the drafter
  // names one token, a point mass.
  TokenDistribution distribution;
  // How likely the drafter holds it to be accepted if those before it are, not knowing the token.
  double confidence = 1.0;
};

}  // namespace replayssm
