// The advance operation for backends whose cursors lie in host memory.
#pragma once

#include "ops/linear_ops.h"

namespace replayssm {

// Precondition: the arguments have been checked.
void advance_on_host(const AdvanceArgs& args);

}  // namespace replayssm
