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

// The same for a draft head: also rows that begin at position 0; `hidden`: elements of the hidden
// states.
Status check_draft(std::span<const TokenId> tokens, std::span<const DraftRow> rows,
                   const KvView& kv, std::size_t hidden, const ModelConfig& config,
                   const ModelOptions& options);

// Rows that want logits.
std::size_t wanted_rows(std::span<const DraftRow> rows);

// Taps that the model does not have, or values of the wrong size.
Status check_taps(const HiddenTaps& hidden, std::size_t tokens, const ModelConfig& config);

}  // namespace replayssm
