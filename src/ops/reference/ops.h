// The float64 operations, one file each. Arguments have been checked.
#pragma once

#include "ops/linear_ops.h"

namespace replayssm::reference {

void packed_step(const StepArgs& args);
void window_step(const StepArgs& args);
void chunk_prefill(const StepArgs& args);
void fold(const FoldArgs& args);
void conv_window(const ConvArgs& args);
void conv_chunk(const ConvArgs& args);
void gates(const GateArgs& args);

// Zeroes the output rows of a null row's tokens.
void zero_outputs(const StepArgs& args, const RowTokens& row);

}  // namespace replayssm::reference
