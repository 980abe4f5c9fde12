// What the linear-attention mixers of all families have in common: the causal convolution over q, k
// and v, gates and betas, and the step of the recurrent state.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "model/decoder_step.h"

namespace replayssm {

// activations().qkv, convolved with `taps` [channels, 4] and through SiLU, in place. `layer` is the
// ordinal among the linear layers.
Status convolve(DecoderStep& step, const float* taps, const SequenceViews& memory,
                std::size_t layer);

// activations().gate and beta from their projections a and b; `a_log` [value_heads], `dt_bias`
// [value_heads, gate_width].
Status compute_gates(DecoderStep& step, const float* a_log, const float* dt_bias);

// activations().core from activations().qkv, gate and beta, by the model's recurrence.
Status step_states(DecoderStep& step, const SequenceViews& memory, std::size_t layer);

}  // namespace replayssm
