// Close values: replay off, on, and with other fold blocks compute the same function.
#pragma once

#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "selftest_bits.h"
#include "selftest_run.h"

namespace replayssm::cli {

struct SelftestPrompt {
  std::vector<TokenId> tokens;
  bool question = false;  // what follows is an answer; else it is any text
};

// For float32 and for bfloat16 activations: logits with L = 8, 16 and 32 against those with replay
// off, over the prompts and what float32 with replay off continues them with greedily; the
// continuations are fed to all as they are (teacher forcing). Appends the checks.
//
// With bfloat16, whoever adds in another order rounds otherwise, and where a model hesitates
// between two tokens (open prose) a rounding decides; how far bfloat16 itself is from float32 is
// shown for comparison (with a GPU: how far its bfloat16 is from float32 on the CPU). So equal
// greedy tokens are asked for where a model does not hesitate: in answers. States are float32 here;
// if `options` asks for another type, its distance from float32 states is shown, written every
// token and folded.
Status check_closeness(const EngineOptions& options, const std::vector<SelftestPrompt>& prompts,
                       CheckList& checks);

}  // namespace replayssm::cli
