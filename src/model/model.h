// A loaded model: weights, and the forward pass of one step over a batch. It owns no sequence
// memory; the engine lends it views.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "model/config.h"
#include "ops/linear_ops.h"

namespace replayssm {

// One attention layer's keys and values, in pages.
struct KvView {
  void* keys = nullptr;     // [pages, page_tokens, kv_heads, head_dim]
  void* values = nullptr;   // [pages, page_tokens, kv_heads, head_dim]
  DType type = DType::f32;  // f32, or bf16 where activations are bf16 values
  int pages = 0;
  int page_tokens = 16;
};

// Everything of the sequences that a step reads and writes. Vectors are indexed by the ordinal of
// the layer among its kind (linear layers; attention layers).
struct SequenceViews {
  CursorView cursors;
  std::vector<StateView> states;
  std::vector<RingView> rings;  // empty with replay off
  std::vector<ConvRingView> conv_rings;
  std::vector<ConvTailView> conv_tails;
  std::vector<KvView> kv;
};

// One row of a step: `tokens` at positions t .. t + tokens - 1, with t the row's committed depth.
struct BatchRow {
  RowTokens span;
  std::span<const PageId> pages;  // pages of positions 0 .. t + tokens - 1, in order
  int logits = 0;                 // logits wanted for the last so many tokens
};

struct Batch {
  std::vector<TokenId> tokens;
  std::vector<BatchRow> rows;
};

struct ModelOptions {
  DType activations = DType::f32;  // f32 or bf16; weights stay as stored
  Recurrence recurrence = Recurrence::replay;
  FoldGeometry geometry;
  // Whole-model bits independent of batch mates, splits and thread count.
  bool deterministic = false;
  // The most tokens of one step. Workspace is allocated for it at load; a larger batch is refused.
  int max_step_tokens = 512;
};

// Called with the name and data of intermediate results ("layers.3.output" [tokens, hidden], ...);
// for parity tests.
using LayerObserver = std::function<void(std::string_view name, std::span<const float> values)>;

class Model {
 public:
  // Loads a Hugging Face directory. `pool` and `ops` outlive the model.
  static Result<std::unique_ptr<Model>> load(const std::filesystem::path& directory,
                                             const ModelOptions& options, ThreadPool& pool,
                                             LinearOps& ops);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const ModelOptions& options() const = 0;
  virtual std::int64_t weight_bytes() const = 0;
  // Scratch that a step of so many tokens and logit rows needs; forward() never needs more.
  virtual std::int64_t workspace_bytes(int tokens, int logit_rows) const = 0;

  // Evaluates the batch against `memory`. Writes KV of the batch's positions, conv rings, records
  // and folds as the rows' phases say; moves no cursor (the engine calls advance afterwards).
  // `logits` is [sum of rows' logits, config().vocab_rows], fp32, in batch order; rows of the
  // vocabulary past config().vocab_size (padding) hold -infinity.
  virtual Status forward(const Batch& batch, const SequenceViews& memory,
                         std::span<float> logits) = 0;

  virtual void observe(LayerObserver observer) = 0;
};

}  // namespace replayssm
