#include "model/linear_layer.h"

namespace replayssm {

Status convolve(DecoderStep& step, const float* taps, const SequenceViews& memory,
                std::size_t layer) {
  ConvArgs conv;
  conv.geometry = step.options().geometry;
  conv.recurrence = step.options().recurrence;
  conv.rings = memory.conv_rings[layer];
  conv.tails = memory.conv_tails[layer];
  conv.cursors = memory.cursors;
  conv.weight = taps;
  conv.input = step.activations().qkv;
  conv.out = step.activations().qkv;
  conv.round_to = step.type();
  conv.rows = step.windows();
  if (!conv.rows.empty()) REPLAYSSM_TRY(step.ops().conv_window(conv));
  conv.rows = step.chunks();
  if (!conv.rows.empty()) REPLAYSSM_TRY(step.ops().conv_chunk(conv));
  return {};
}

Status compute_gates(DecoderStep& step, const float* a_log, const float* dt_bias) {
  const StepActivations& act = step.activations();
  GateArgs gates;
  gates.shape = step.config().linear;
  gates.tokens = step.tokens();
  gates.a = act.a;
  gates.b = act.b;
  gates.a_log = a_log;
  gates.dt_bias = dt_bias;
  gates.gate = act.gate;
  gates.beta = act.beta;
  return step.ops().gates(gates);
}

Status step_states(DecoderStep& step, const SequenceViews& memory, std::size_t layer) {
  const StepActivations& act = step.activations();
  StepArgs args;
  args.shape = step.config().linear;
  args.geometry = step.options().geometry;
  args.states = memory.states[layer];
  if (!memory.rings.empty()) args.rings = memory.rings[layer];
  args.cursors = memory.cursors;
  args.qkv = act.qkv;
  args.gate = act.gate;
  args.beta = act.beta;
  args.out = act.core;
  if (step.options().recurrence == Recurrence::packed) {
    args.rows = step.rows();
    return step.ops().packed_step(args);
  }
  args.rows = step.windows();
  if (!args.rows.empty()) REPLAYSSM_TRY(step.ops().window_step(args));
  args.rows = step.chunks();
  if (!args.rows.empty()) REPLAYSSM_TRY(step.ops().chunk_prefill(args));
  return {};
}

}  // namespace replayssm
