#include "model/qwen3_5.h"

#include <algorithm>

#include "model/linear_layer.h"
#include "model/norm.h"
#include "model/rope.h"

namespace replayssm {

Status mix_gdn(DecoderStep& step, const GdnWeights& w, const SequenceViews& memory,
               std::size_t layer) {
  const StepActivations& act = step.activations();
  const HeadShape& shape = step.config().linear;
  step.project(act.normed, {step.whole(w.qkv, act.qkv), step.whole(w.z, act.z),
                            step.whole(w.b, act.b), step.whole(w.a, act.a)});
  REPLAYSSM_TRY(convolve(step, w.conv.data(), memory, layer));
  REPLAYSSM_TRY(compute_gates(step, w.a_log.data(), w.dt_bias.data()));
  if (step.type() == DType::bf16) {
    round_to_bf16(act.beta, static_cast<std::size_t>(step.tokens() * shape.value_heads));
  }
  REPLAYSSM_TRY(step_states(step, memory, layer));

  const auto heads = static_cast<std::size_t>(shape.value_heads);
  step.for_tokens([&](std::size_t first, int count) {
    const std::size_t at = first * heads * kValueDim;
    gated_rms_norm({act.core + at, kValueDim}, {act.z + at, kValueDim}, count * shape.value_heads,
                   kValueDim, w.norm_scale.data(), step.config().rms_norm_eps, step.type(),
                   {act.core + at, kValueDim});
  });
  step.project(act.core, {step.whole(w.out, act.update)});
  return {};
}

void mix_attention(DecoderStep& step, const AttentionWeights& w, const KvView& kv) {
  const StepActivations& act = step.activations();
  const AttentionShape& shape = step.config().attention;
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto heads = static_cast<std::size_t>(shape.heads);
  const auto kv_heads = static_cast<std::size_t>(shape.kv_heads);
  const std::size_t q_stride = shape.output_gate ? 2 * dim : dim;
  const std::size_t pairs = step.rotary_pairs();
  step.project(act.normed,
               {step.whole(w.q, act.q_and_gate), step.whole(w.k, act.k), step.whole(w.v, act.v)});

  step.for_tokens([&](std::size_t first, int count) {
    rms_norm({act.q_and_gate + first * heads * q_stride, q_stride}, count * shape.heads,
             shape.head_dim, w.q_norm_scale.data(), step.config().rms_norm_eps, step.type(),
             {act.q + first * heads * dim, dim});
    rms_norm({act.k + first * kv_heads * dim, dim}, count * shape.kv_heads, shape.head_dim,
             w.k_norm_scale.data(), step.config().rms_norm_eps, step.type(),
             {act.k + first * kv_heads * dim, dim});
    for (std::size_t t = first; t < first + static_cast<std::size_t>(count); ++t) {
      const float* cosine = act.cosine + t * pairs;
      const float* sine = act.sine + t * pairs;
      for (std::size_t h = 0; h < heads; ++h) {
        rotate(act.q + (t * heads + h) * dim, static_cast<int>(pairs), cosine, sine, step.type());
      }
      for (std::size_t h = 0; h < kv_heads; ++h) {
        rotate(act.k + (t * kv_heads + h) * dim, static_cast<int>(pairs), cosine, sine,
               step.type());
      }
    }
  });
  for (const AttentionSpan& span : step.spans()) append_kv(span, shape, act.k, act.v, kv);
  if (step.has_null_rows()) {
    std::fill_n(act.attended, static_cast<std::size_t>(step.tokens()) * heads * dim, 0.0f);
  }
  step.attention().run(step.spans(), act.q, kv, act.attended);

  step.for_tokens([&](std::size_t first, int count) {
    float* out = act.attended + first * heads * dim;
    if (step.type() == DType::bf16)
      round_to_bf16(out, static_cast<std::size_t>(count) * heads * dim);
    if (!shape.output_gate) return;
    sigmoid_product({out, dim}, {act.q_and_gate + first * heads * q_stride + dim, q_stride},
                    count * shape.heads, shape.head_dim, step.type());
  });
  step.project(act.attended, {step.whole(w.out, act.update)});
}

}  // namespace replayssm
