// The linear mixer of the Qwen3-Next and Qwen3.5 families: the gated delta rule.
// Source: Yang et al., Gated Delta Networks (arXiv 2412.06464); Hugging Face transformers,
// modeling_qwen3_5.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "model/decoder_step.h"

namespace replayssm {

// activations().update from activations().normed. `layer` is the ordinal among the linear layers.
// out = W_out (norm(o) * silu(z)), with o the recurrence's output.
Status mix_gdn(DecoderStep& step, const GdnWeights& w, const SequenceViews& memory,
               std::size_t layer);

}  // namespace replayssm
