// Equal bits: with --deterministic and one fold block, how tokens are split into chunks and
// windows, who else is in the batch, forks, pauses, what the prefix cache had and the number of
// threads change nothing.
#pragma once

#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "selftest_run.h"

namespace replayssm::cli {

// Texts that the checks work on, in tokens: at least three, each longer than kBitsTokens.
using Texts = std::vector<std::vector<TokenId>>;

inline constexpr int kBitsPrompt = 150;  // evaluated as prompt; the rest is decoded
inline constexpr int kBitsTokens = 176;

// `options` without memory sizes; deterministic is set. Appends one check a comparison.
Status check_equal_bits(const EngineOptions& options, const Texts& texts, CheckList& checks);

}  // namespace replayssm::cli
