// How fast the target's steps are, by measuring a few.
#pragma once

#include "core/result.h"
#include "spec/prefix_scheduler.h"

namespace replayssm {

class Engine;

// Times verification steps of 1 token up to a whole window of every running request, on sequences
// of a few tokens that are dropped again. Precondition: no sequence is running.
Result<StepRates> measure_step_rates(Engine& engine);

}  // namespace replayssm
