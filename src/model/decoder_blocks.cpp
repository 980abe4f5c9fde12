#include "model/decoder_blocks.h"

#include <algorithm>
#include <limits>

#include "model/norm.h"

namespace replayssm {

void normalise(DecoderStep& step, const std::vector<float>& scale) {
  const StepActivations& act = step.activations();
  const auto width = static_cast<std::size_t>(step.config().hidden_size);
  step.for_tokens([&](std::size_t first, int count) {
    rms_norm({act.hidden + first * width, width}, count, step.config().hidden_size, scale.data(),
             step.config().rms_norm_eps, step.type(), {act.normed + first * width, width});
  });
}

void add_update(DecoderStep& step) {
  const StepActivations& act = step.activations();
  const auto width = static_cast<std::size_t>(step.config().hidden_size);
  step.for_tokens([&](std::size_t first, int count) {
    add_rows(act.hidden + first * width, act.update + first * width,
             static_cast<std::size_t>(count) * width, step.type());
  });
}

void mlp(DecoderStep& step, const MlpWeights& w) {
  const StepActivations& act = step.activations();
  step.project(act.normed, {step.whole(w.gate, act.mlp_gate), step.whole(w.up, act.mlp_up)});
  const auto width = static_cast<std::size_t>(step.config().intermediate_size);
  step.for_tokens([&](std::size_t first, int count) {
    float* gate = act.mlp_gate + first * width;
    silu_product(gate, act.mlp_up + first * width, static_cast<std::size_t>(count) * width,
                 step.type(), gate);
  });
  step.project(act.mlp_gate, {step.whole(w.down, act.update)});
}

void project_logits(DecoderStep& step, const WeightMatrix& head, const float* normed, int rows,
                    std::span<float> logits) {
  if (rows == 0) return;
  const ModelConfig& config = step.config();
  const auto stride = static_cast<std::size_t>(config.vocab_rows);
  step.project(normed, rows, {&head, logits.data(), stride, config.vocab_size}, true);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const auto row = logits.subspan(r * stride, stride);
    std::fill(row.begin() + config.vocab_size, row.end(), -std::numeric_limits<float>::infinity());
  }
}

}  // namespace replayssm
