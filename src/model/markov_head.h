// What a DSpark drafter puts on its logits: a bias by the token before, and how likely a draft is
// to be accepted. Source: DSpark (arXiv 2607.05147).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/block_draft_model.h"

namespace replayssm {

// Goes through the drafts of several blocks, one after the other. With e = embedding[token before]
// and h the hidden state of the row that predicts:
//   vanilla  bias = W e
//   gated    bias = W (sigmoid(gate [h ; e]) * e)
//   rnn      [a ; c ; o] = gate [s ; e ; h],  s = sigmoid(a) s + (1 - sigmoid(a)) tanh(c),
//            bias = W tanh(o);  s = 0 before the first draft
//   confidence = sigmoid(proj [h ; e] / temperature of the place)
class MarkovHead {
 public:
  // The model outlives it; a step's rows are at most `blocks`.
  MarkovHead(BlockDraftModel& model, int blocks);

  bool has_confidence() const { return model_.weights().confidence.has_value(); }

  // From here on the first drafts of so many blocks.
  void begin(int blocks);

  // The next draft of every block. `before` [blocks]: the tokens before them; `hidden` and `logits`
  // as BlockDraftModel::run_blocks left them. Adds the bias to the draft's row of each block's
  // logits. `confidences` [blocks], or empty where there is no such head.
  void next(std::span<const TokenId> before, std::span<const float> hidden, std::span<float> logits,
            std::span<double> confidences);

  static std::int64_t bytes(const BlockDraftConfig& config, int blocks);

 private:
  void embed_before(std::span<const TokenId> before);
  void apply_gate(std::span<const float> hidden);
  void apply_rnn(std::span<const float> hidden);
  void add_bias(std::span<float> logits);
  double confidence(std::span<const float> hidden, std::size_t block) const;
  const float* hidden_of(std::span<const float> hidden, std::size_t block) const;

  BlockDraftModel& model_;
  std::size_t rank_;
  std::size_t width_;
  std::size_t blocks_ = 0;
  std::size_t draft_ = 0;
  AlignedBuffer<float> embedded_;  // [blocks, rank]
  AlignedBuffer<float> inputs_;    // [blocks, rank], of the last product
  AlignedBuffer<float> joined_;    // [blocks, 2 rank + hidden_size]
  AlignedBuffer<float> gates_;     // [blocks, 3 rank]
  AlignedBuffer<float> state_;     // [blocks, rank]
  AlignedBuffer<float> bias_;      // [blocks, vocab_rows]
};

}  // namespace replayssm
