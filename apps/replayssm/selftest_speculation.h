// Speculation proven: with every drafter that the model allows, a greedy text is that of plain
// decoding, and what its sequence holds is what reading that text would have left.
#pragma once

#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "selftest_run.h"

namespace replayssm::cli {

// `options` without memory sizes; deterministic is set. `text` has more than 64 tokens. Appends one
// check a drafter and comparison.
Status check_speculation(const EngineOptions& options, const std::vector<TokenId>& text,
                         CheckList& checks);

}  // namespace replayssm::cli
