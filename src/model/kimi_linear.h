// The linear layer of Kimi Linear: Kimi Delta Attention, a delta rule with one gate for each key
// channel. Source: Kimi Linear (arXiv 2510.26692); Hugging Face transformers, modeling_kimi_linear.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "model/decoder_step.h"

namespace replayssm {

// activations().update from u = activations().normed. `layer` is the ordinal among the linear
// layers. Each of q, k and v is a projection of u with a convolution of its own; channels do not
// mix in a convolution, so one over q | k | v is all three.
//   g = -exp(A_log) softplus(F_up F_down u + dt_bias)    beta = sigmoid(W_b u)
//   out = W_out (norm(o) * sigmoid(G_up G_down u)), with o the recurrence's output
// With bf16 activations g, beta and the gated norm are computed in fp32; the norm's result is
// rounded once.
Status mix_kda(DecoderStep& step, const KdaWeights& w, const SequenceViews& memory,
               std::size_t layer);

}  // namespace replayssm
