// From a model's configuration to the numbers that the memory plan works with. Needs no weights.
#pragma once

#include <cstdint>

#include "cache/sequence_layout.h"
#include "core/result.h"
#include "model/config.h"
#include "model/model.h"
#include "replay/memory_plan.h"

namespace replayssm {

// `state_type`: of states in slots; corrections in rings follow it.
SequenceLayout sequence_layout(const ModelConfig& config, const ModelOptions& options,
                               DType state_type, int page_tokens);

// Fills slot, rings, conv rings and KV; the caller adds budget, weights, workspace and requests.
MemoryNeeds sequence_needs(const SequenceLayout& layout);

// Bytes of the tensors that config calls for, if every matrix is stored in config.weight_type and
// norms, gates and convolution taps are kept as float32. `with_draft_head` adds the mtp.* head.
std::int64_t planned_weight_bytes(const ModelConfig& config, bool with_draft_head);

}  // namespace replayssm
