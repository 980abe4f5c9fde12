// The draft head of the Qwen3.5 family: one more attention layer behind the target.
#pragma once

#include <cstdint>

#include "core/aligned_buffer.h"
#include "model/decoder_step.h"
#include "model/model.h"

namespace replayssm {

// z = fc [norm(embedding of the token) ; norm(hidden state before it)], then a decoder layer and a
// norm; embedding and head are the target's. Source: Hugging Face checkpoints of Qwen3.5 (mtp.*);
// Gloeckle et al., Better and faster large language models via multi-token prediction (ICML 2024).
class MtpHead final : public DraftHead {
 public:
  // All of them outlive it. Borrows the step's activations: not while a step is in progress.
  MtpHead(const MtpWeights& weights, const WeightMatrix& embedding, const WeightMatrix& head,
          DecoderStep& step);

  Status draft(std::span<const TokenId> tokens, std::span<const DraftRow> rows, const KvView& kv,
               std::span<float> hidden, std::span<float> logits) override;

  // Bytes that an instance owns, for steps of so many tokens.
  static std::int64_t scratch_bytes(const ModelConfig& config, int tokens);

 private:
  const MtpWeights& weights_;
  const WeightMatrix& embedding_;
  const WeightMatrix& head_;
  DecoderStep& step_;
  AlignedBuffer<float> joined_;  // [tokens, 2 * hidden_size]
  std::vector<AttentionSpan> spans_;
};

}  // namespace replayssm
