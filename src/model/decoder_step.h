// What the parts of a decoder share while they evaluate one step: the step's rows, its activations,
// and the means to compute with them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "core/thread_pool.h"
#include "model/attention.h"
#include "model/matmul.h"
#include "model/model.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ops/linear_ops.h"

namespace replayssm {

// Allocates everything for steps of options.max_step_tokens when it is made. Used by one thread at
// a time, the one that may call pool.parallel_for.
class DecoderStep {
 public:
  // All of them outlive it. `widest`: of inputs of products that are not the decoder layers'.
  DecoderStep(const ModelConfig& config, const ModelOptions& options, ThreadPool& pool,
              LinearOps& ops, int widest = 0);

  // Takes up a step: sorts the rows by phase, embeds the tokens and computes the angles of their
  // positions. Tokens of null rows are embedded as zeros. Precondition: check_batch accepts it.
  void begin(const Batch& batch, const WeightMatrix& embedding);
  // The same for attention layers alone.
  void begin(std::span<const TokenId> tokens, std::span<const AttentionSpan> spans,
             const WeightMatrix& embedding);
  // Without tokens: the caller makes the hidden states.
  void begin(std::span<const AttentionSpan> spans);

  const ModelConfig& config() const { return config_; }
  const ModelOptions& options() const { return options_; }
  DType type() const { return options_.activations; }
  LinearOps& ops() const { return ops_; }
  const StepActivations& activations() const { return workspace_.activations(); }
  Attention& attention() { return attention_; }

  int tokens() const { return tokens_; }
  std::span<const RowTokens> windows() const { return windows_; }
  std::span<const RowTokens> chunks() const { return chunks_; }
  std::span<const RowTokens> rows() const { return all_rows_; }
  bool has_null_rows() const { return spans_.size() < all_rows_.size(); }
  // Of the rows that are not null.
  std::span<const AttentionSpan> spans() const { return spans_; }
  std::size_t rotary_pairs() const { return frequencies_.size(); }

  // A product with the whole of a matrix, its rows next to each other.
  static Product whole(const WeightMatrix& weight, float* out) {
    return {&weight, out, static_cast<std::size_t>(weight.rows), weight.rows};
  }
  // Products of x, the step's tokens times the width of the weights.
  void project(const float* x, std::initializer_list<Product> products);
  // The same for any number of rows; `exact` as in Matmul::run.
  void project(const float* x, int rows, const Product& product, bool exact);

  // Splits the tokens of the step over the pool; f(first, count) works on disjoint tokens.
  template <class F>
  void for_tokens(F&& f) {
    constexpr int kTokensPerTask = 8;
    const auto task = [&](std::size_t index, int) {
      const int first = static_cast<int>(index) * kTokensPerTask;
      f(static_cast<std::size_t>(first), std::min(kTokensPerTask, tokens_ - first));
    };
    const int tasks = (tokens_ + kTokensPerTask - 1) / kTokensPerTask;
    pool_.parallel_for(static_cast<std::size_t>(tasks), std::cref(task));
  }

  // Bytes that an instance for steps of so many tokens owns.
  static std::int64_t bytes(const ModelConfig& config, const ModelOptions& options, int threads,
                            int tokens, int widest = 0);

 private:
  const ModelConfig& config_;
  const ModelOptions& options_;
  ThreadPool& pool_;
  LinearOps& ops_;
  std::vector<float> frequencies_;
  Matmul matmul_;
  Attention attention_;
  Workspace workspace_;

  void clear_rows();
  void place(const AttentionSpan& span);
  void embed_tokens(const AttentionSpan& span, std::span<const TokenId> tokens,
                    const WeightMatrix& embedding);

  // Of the current step.
  int tokens_ = 0;
  std::vector<RowTokens> windows_;
  std::vector<RowTokens> chunks_;
  std::vector<RowTokens> all_rows_;
  std::vector<AttentionSpan> spans_;
};

}  // namespace replayssm
