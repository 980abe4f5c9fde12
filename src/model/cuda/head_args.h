// What placing the heads of an attention layer takes, from where the decoder and its draft head
// keep it.
#pragma once

#include "model/cuda/decoder_buffers.h"
#include "model/cuda/decoder_kernels.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/step_tables.h"

namespace replayssm::cuda {

// The rotary embedding's frequencies on the device, see HeadArgs.
struct DeviceRope {
  const float* frequencies = nullptr;
  int pairs = 0;
};

inline HeadArgs head_args(const ModelConfig& config, const DeviceAttention& w,
                          const DecoderActivations& act, const StepTables& tables, const KvView& kv,
                          const DeviceRope& rope) {
  const AttentionShape& shape = config.attention;
  HeadArgs heads;
  heads.projected = act.attention_in;
  heads.stride = w.in.rows;
  heads.query_width = query_width(shape);
  heads.q_scale = w.q_norm_scale;
  heads.k_scale = w.k_norm_scale;
  heads.eps = static_cast<float>(config.rms_norm_eps);
  heads.frequencies = rope.frequencies;
  heads.attention_factor = static_cast<float>(config.rope.attention_factor);
  heads.pairs = rope.pairs;
  heads.positions = tables.positions();
  heads.places = tables.places();
  heads.queries = act.queries;
  heads.keys = static_cast<bf16*>(kv.keys);
  heads.values = static_cast<bf16*>(kv.values);
  heads.tokens = tables.token_count();
  heads.heads = shape.heads;
  heads.kv_heads = shape.kv_heads;
  heads.head_dim = shape.head_dim;
  return heads;
}

}  // namespace replayssm::cuda
