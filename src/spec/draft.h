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
};

}  // namespace replayssm
