#include "model/qwen3_5.h"

#include "model/linear_layer.h"
#include "model/norm.h"

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

}  // namespace replayssm
