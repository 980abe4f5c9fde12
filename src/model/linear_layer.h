// What the linear-attention mixers of all families have in common: the causal convolution over q, k
// and v, and the step of the recurrent state.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "model/decoder_step.h"

namespace replayssm {

// activations().qkv, convolved with `taps` [channels, 4] and through SiLU, in place. `layer` is the
// ordinal among the linear layers.
Status convolve(DecoderStep& step, const float* taps, const SequenceViews& memory,
                std::size_t layer);

// activations().core from activations().qkv, gate and beta, by the model's recurrence.
Status step_states(DecoderStep& step, const SequenceViews& memory, std::size_t layer);

}  // namespace replayssm
