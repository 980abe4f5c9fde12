#include "model/workspace.h"

#include <algorithm>

namespace replayssm {
namespace {

// Hands out 64-byte aligned stretches of `memory`; with a null memory it only counts.
class Carver {
 public:
  explicit Carver(float* memory) : memory_(memory) {}

  float* take(int tokens, int width) {
    constexpr std::size_t kLine = 16;  // floats in 64 bytes
    const std::size_t at = used_;
    const std::size_t count = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(width);
    used_ += (count + kLine - 1) / kLine * kLine;
    most_ = std::max(most_, used_);
    return memory_ == nullptr ? nullptr : memory_ + at;
  }
  std::size_t used() const { return used_; }
  void return_to(std::size_t mark) { used_ = mark; }
  std::size_t most() const { return most_; }

 private:
  float* memory_;
  std::size_t used_ = 0;
  std::size_t most_ = 0;
};

StepActivations carve(const ModelConfig& config, int tokens, Carver& carver) {
  StepActivations a;
  a.hidden = carver.take(tokens, config.hidden_size);
  a.normed = carver.take(tokens, config.hidden_size);
  a.update = carver.take(tokens, config.hidden_size);
  a.cosine = carver.take(tokens, config.rope.rotary_dim / 2);
  a.sine = carver.take(tokens, config.rope.rotary_dim / 2);
  const std::size_t shared = carver.used();

  if (config.count(LayerKind::linear) > 0) {
    const HeadShape& shape = config.linear;
    const int values = shape.value_heads * kValueDim;
    a.qkv = carver.take(tokens, shape.channels());
    a.z = carver.take(tokens, values);
    a.b = carver.take(tokens, shape.value_heads);
    a.a = carver.take(tokens, shape.value_heads * shape.gate_width());
    a.gate = carver.take(tokens, shape.value_heads * shape.gate_width());
    a.beta = carver.take(tokens, shape.value_heads);
    a.core = carver.take(tokens, values);
    if (shape.gate == GateKind::kda) {
      a.forget_rank = carver.take(tokens, kKeyDim);
      a.gate_rank = carver.take(tokens, kValueDim);
    }
    carver.return_to(shared);
  }
  // A draft head has an attention layer although the decoder may have none.
  if (config.attention.heads > 0) {
    const AttentionShape& shape = config.attention;
    a.q_and_gate = carver.take(tokens, shape.heads * shape.head_dim * (shape.output_gate ? 2 : 1));
    a.q = carver.take(tokens, shape.heads * shape.head_dim);
    a.k = carver.take(tokens, shape.kv_heads * shape.head_dim);
    a.v = carver.take(tokens, shape.kv_heads * shape.head_dim);
    a.attended = carver.take(tokens, shape.heads * shape.head_dim);
    carver.return_to(shared);
  }
  a.mlp_gate = carver.take(tokens, config.intermediate_size);
  a.mlp_up = carver.take(tokens, config.intermediate_size);
  return a;
}

std::size_t elements(const ModelConfig& config, int tokens) {
  Carver carver(nullptr);
  carve(config, tokens, carver);
  return carver.most();
}

}  // namespace

Workspace::Workspace(const ModelConfig& config, int max_tokens)
    : max_tokens_(max_tokens), memory_(elements(config, max_tokens)) {
  Carver carver(memory_.data());
  activations_ = carve(config, max_tokens, carver);
}

std::int64_t Workspace::bytes(const ModelConfig& config, int max_tokens) {
  return static_cast<std::int64_t>(elements(config, max_tokens) * sizeof(float));
}

}  // namespace replayssm
