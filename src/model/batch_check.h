// What a batch has to satisfy before a forward pass writes anything.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "model/model.h"

namespace replayssm {

// Refuses, naming the field: more than options.max_step_tokens tokens; ids outside the vocabulary;
// rows whose spans do not follow one another over all tokens, or that name no sequence; windows
// longer than T_max; missing or unknown pages; more logits than tokens; views that do not match
// the configuration's layers; a logits array of the wrong size.
Status check_batch(const Batch& batch, const SequenceViews& memory, std::size_t logits,
                   const ModelConfig& config, const ModelOptions& options);

}  // namespace replayssm
