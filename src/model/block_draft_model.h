// The forward pass of a block drafter: a few layers over features of the target and a block of
// rows. Sources: DFlash (arXiv 2602.06036); DSpark (arXiv 2607.05147).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/result.h"
#include "model/block_draft_config.h"
#include "model/block_draft_weights.h"
#include "model/decoder_step.h"
#include "model/model.h"

namespace replayssm {

// Tokens of one sequence whose features become context.
struct ContextRow {
  Depth start;  // position of the first
  int tokens = 0;
  std::span<const PageId> pages;  // of positions 0 .. start + tokens - 1, in order
};

// A block behind the committed tokens of one sequence.
struct BlockRow {
  TokenId anchor = 0;             // the newest token
  Depth start;                    // its position: all before it are context
  std::span<const PageId> pages;  // of positions 0 .. start - 1, in order
};

// Keys and values of context depend on the target's features alone and stay in pages, one layer
// behind the other; those of a block are gone with the call. Used by one thread at a time, the one
// that may call pool.parallel_for.
class BlockDraftModel {
 public:
  // What it computes with; max_step_tokens: rows of a call, at least a block. All outlive it.
  // `target`: whose tokens are drafted. Precondition: config is for it.
  BlockDraftModel(const BlockDraftConfig& config, const BlockDraftWeights& weights,
                  const Model& target, const ModelOptions& options, ThreadPool& pool,
                  LinearOps& ops);

  const BlockDraftConfig& config() const { return config_; }
  const BlockDraftWeights& weights() const { return weights_; }
  // For heads that compute behind it, between calls.
  DecoderStep& step() { return step_; }

  // Writes the keys and values of context to `kv`, one view for each layer.
  //   features  [tokens, config().features(), hidden_size], row after row
  // K = rope(norm(W_k c)), V = W_v c with c = norm(fc(features)).
  Status add_context(std::span<const float> features, std::span<const ContextRow> rows,
                     std::span<const KvView> kv);

  // One pass over the blocks [anchor, mask, ...] of all rows.
  //   hidden  [rows, config().drafts(), hidden_size], after the last norm, of the rows that predict
  //   logits  [rows, config().drafts(), vocab_rows] of the target's head; as Model::forward's
  Status run_blocks(std::span<const BlockRow> rows, std::span<const KvView> kv,
                    std::span<float> hidden, std::span<float> logits);

  // Bytes that an instance owns, whose calls have so many rows.
  static std::int64_t bytes(const BlockDraftConfig& config, const ModelOptions& options,
                            int threads);

 private:
  void run_layer(std::size_t layer, const KvView& kv, int blocks);
  void convolve(const BlockConvWeights& conv, int side, const float* x, int blocks, float* out);
  void project_kernel(const BlockConvWeights& conv);
  std::size_t kernel_width() const;

  BlockDraftConfig config_;
  const BlockDraftWeights& weights_;
  const WeightMatrix& embedding_;
  const WeightMatrix& head_;
  ModelOptions options_;
  DecoderStep step_;
  std::vector<AttentionSpan> spans_;   // of the call in progress
  std::vector<TokenId> tokens_;        // the same
  AlignedBuffer<std::byte> block_kv_;  // [2, tokens, kv_heads, head_dim], of the pages' type
  AlignedBuffer<float> kernels_;       // [tokens, 2, taps, groups], what is added to the base
  AlignedBuffer<float> convolved_;     // [tokens, hidden_size]
};

}  // namespace replayssm
