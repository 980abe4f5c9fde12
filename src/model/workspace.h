// The scratch of a forward pass: sized once for the largest step, carved the same way every step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/aligned_buffer.h"
#include "model/config.h"

namespace replayssm {

// Activations of one step, [tokens, ...] each, all fp32 (bf16 values where the activations are).
// The three mixers' and the MLP's arrays share memory: only one of them is live at a time.
struct StepActivations {
  float* hidden = nullptr;  // [tokens, hidden_size] residual stream
  float* normed = nullptr;  // [tokens, hidden_size] input of the mixer, the MLP or the head
  float* update = nullptr;  // [tokens, hidden_size] what is added to the residual stream
  float* cosine = nullptr;  // [tokens, rotary_dim / 2]
  float* sine = nullptr;    // [tokens, rotary_dim / 2]

  // Linear attention.
  float* qkv = nullptr;   // [tokens, channels]
  float* z = nullptr;     // [tokens, HV * V]
  float* b = nullptr;     // [tokens, HV]
  float* a = nullptr;     // [tokens, HV, gate_width]
  float* gate = nullptr;  // [tokens, HV, gate_width]
  float* beta = nullptr;  // [tokens, HV]
  float* core = nullptr;  // [tokens, HV * V]
  // Between the two projections of KDA's gates.
  float* forget_rank = nullptr;  // [tokens, K]
  float* gate_rank = nullptr;    // [tokens, V]

  // Attention.
  float* q_and_gate = nullptr;  // [tokens, heads, 2 * head_dim], as projected
  float* q = nullptr;           // [tokens, heads, head_dim]
  float* k = nullptr;           // [tokens, kv_heads, head_dim]
  float* v = nullptr;           // [tokens, kv_heads, head_dim]
  float* attended = nullptr;    // [tokens, heads, head_dim]

  // MLP.
  float* mlp_gate = nullptr;  // [tokens, intermediate_size]
  float* mlp_up = nullptr;    // [tokens, intermediate_size]
};

// Owns the memory. max_tokens is the most tokens that a step may have.
class Workspace {
 public:
  Workspace(const ModelConfig& config, int max_tokens);

  int max_tokens() const { return max_tokens_; }
  const StepActivations& activations() const { return activations_; }

  // Bytes that an instance for so many tokens owns.
  static std::int64_t bytes(const ModelConfig& config, int max_tokens);

 private:
  int max_tokens_;
  AlignedBuffer<float> memory_;
  StepActivations activations_;
};

}  // namespace replayssm
