// Rotary position embedding on the first dimensions of a head, plain or YaRN.
#pragma once

#include <vector>

#include "core/dtype.h"
#include "model/config.h"
#include "replay/depth.h"

namespace replayssm {

// Radians per position of each rotated pair, [rotary_dim / 2]: theta^(-2i / rotary_dim). YaRN
// (Peng et al., arXiv 2309.00071, NTK by parts): pairs that turn more than beta_fast times within
// the original context keep their frequency, pairs that turn less than beta_slow times have it
// divided by the factor, a linear ramp lies between.
std::vector<float> rope_frequencies(const RopeConfig& config);

// Cosine and sine of one position's angles, [frequencies.size()] each, times the attention factor,
// rounded to `type`.
void rope_angles(const std::vector<float>& frequencies, double attention_factor, Depth position,
                 DType type, float* cosine, float* sine);

// Rotates one head in place: pair (i, i + pairs) for i < pairs; what lies behind 2 * pairs stays.
// bf16 rounds the products and the sums.
void rotate(float* head, int pairs, const float* cosine, const float* sine, DType type);

}  // namespace replayssm
