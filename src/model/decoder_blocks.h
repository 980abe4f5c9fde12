// What the layers of a decoder have in common around their mixers.
#pragma once

#include <vector>

#include "model/decoder_step.h"

namespace replayssm {

// activations().normed = norm of activations().hidden with this scale, [hidden_size].
void normalise(DecoderStep& step, const std::vector<float>& scale);

// Adds activations().update to activations().hidden.
void add_update(DecoderStep& step);

// activations().update = SwiGLU MLP of activations().normed.
void mlp(DecoderStep& step, const MlpWeights& w);

// The head's logits of the first `rows` rows of `normed`, [rows, vocab_rows], fp32 whatever the
// activations are; -infinity for the padding of the vocabulary.
void project_logits(DecoderStep& step, const WeightMatrix& head, const float* normed, int rows,
                    std::span<float> logits);

}  // namespace replayssm
