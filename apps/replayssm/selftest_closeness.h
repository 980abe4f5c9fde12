// Close values: replay off, on, and with other fold blocks compute the same function.
#pragma once

#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "selftest_bits.h"
#include "selftest_run.h"

namespace replayssm::cli {

// For float32 and for bfloat16 activations: teacher-forced logits with L = 8, 16 and 32 against
// those with replay off, over the texts and what replay off continues them with greedily. Appends
// the checks.
Status check_closeness(const EngineOptions& options, const Texts& texts,
                       std::vector<Check>& checks);

}  // namespace replayssm::cli
