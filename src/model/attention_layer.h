// A layer's attention: projections, norms and rotation of the heads, attention over pages.
#pragma once

#include <span>

#include "model/decoder_step.h"
#include "model/weights.h"

namespace replayssm {

// activations().update = W_out (attention * sigmoid(gate)) of activations().normed, with norms and
// rotary embedding on q and k; appends to the pages of `kv`.
void mix_attention(DecoderStep& step, const AttentionWeights& w, const KvView& kv);

// Its parts. activations().q, k and v, normalised and rotated; and the gate, if there is one.
void project_heads(DecoderStep& step, const AttentionWeights& w);
// k and v alone.
void project_keys(DecoderStep& step, const AttentionWeights& w);
// activations().update from q, k and v; `spans` cover the step's tokens as step.spans() do.
void attend_and_project(DecoderStep& step, const AttentionWeights& w, const KvView& kv,
                        std::span<const AttentionSpan> spans);

}  // namespace replayssm
