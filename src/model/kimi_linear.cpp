#include "model/kimi_linear.h"

#include "model/linear_layer.h"
#include "model/norm.h"

namespace replayssm {

Status mix_kda(DecoderStep& step, const KdaWeights& w, const SequenceViews& memory,
               std::size_t layer) {
  const StepActivations& act = step.activations();
  const HeadShape& shape = step.config().linear;
  const auto heads = static_cast<std::size_t>(shape.value_heads);
  const auto channels = static_cast<std::size_t>(shape.channels());
  const auto strided = [channels](const WeightMatrix& weight, float* out) {
    return Product{&weight, out, channels, weight.rows};
  };
  step.project(act.normed, {strided(w.q, act.qkv), strided(w.k, act.qkv + heads * kKeyDim),
                            strided(w.v, act.qkv + 2 * heads * kKeyDim), step.whole(w.b, act.b),
                            step.whole(w.forget_down, act.forget_rank),
                            step.whole(w.gate_down, act.gate_rank)});
  step.project(act.forget_rank, {step.whole(w.forget_up, act.a)});
  step.project(act.gate_rank, {step.whole(w.gate_up, act.z)});
  REPLAYSSM_TRY(convolve(step, w.conv.data(), memory, layer));
  REPLAYSSM_TRY(compute_gates(step, w.a_log.data(), w.dt_bias.data()));
  REPLAYSSM_TRY(step_states(step, memory, layer));

  step.for_tokens([&](std::size_t first, int count) {
    const std::size_t at = first * heads * kValueDim;
    sigmoid_gated_rms_norm({act.core + at, kValueDim}, {act.z + at, kValueDim},
                           count * shape.value_heads, kValueDim, w.norm_scale.data(),
                           step.config().rms_norm_eps, step.type(), {act.core + at, kValueDim});
  });
  step.project(act.core, {step.whole(w.out, act.update)});
  return {};
}

}  // namespace replayssm
