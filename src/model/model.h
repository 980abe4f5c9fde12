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
#include "model/token_choice.h"
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
// Cursors may lie where the host cannot read them, so the host's part of them is said here.
struct BatchRow {
  RowTokens span;
  Depth start;                    // t
  std::span<const PageId> pages;  // pages of positions 0 .. t + tokens - 1, in order
  int logits = 0;                 // logits wanted for the last so many tokens
  bool null = false;              // the row's base is the null slot; start and pages are not used
  // The first token is the one that the step launched before chooses for its row of logits of this
  // number; what the batch says there is not used. -1: the batch says it.
  int chosen_in_row = -1;
};

struct Batch {
  std::vector<TokenId> tokens;
  std::vector<BatchRow> rows;
};

// Where a model's weights come from.
enum class LoadFormat {
  checkpoint,  // "auto": the directory's safetensors files
  dummy,       // random ones of the shapes that config.json describes
};

struct ModelOptions {
  DType activations = DType::f32;  // f32 or bf16; weights stay as stored
  Recurrence recurrence = Recurrence::replay;
  FoldGeometry geometry;
  // Whole-model bits independent of batch mates, splits and thread count.
  bool deterministic = false;
  bool draft_head = false;  // load the checkpoint's mtp.* tensors, too
  // Model::embedding() and head() are there for the host also where the model is on a device.
  bool host_embeddings = false;
  LoadFormat load_format = LoadFormat::checkpoint;
  // The most tokens of one step. Workspace is allocated for it at load; a larger batch is refused.
  int max_step_tokens = 512;
};

// Hidden states that a step is to hand out for every token, by number: n is the residual stream
// after layer n, or one of these.
inline constexpr int kTapEmbedding = -1;  // before the first layer
inline constexpr int kTapFinalNorm = -2;  // after the final norm
struct HiddenTaps {
  std::span<const int> taps;
  std::span<float> values;  // [tokens of the batch, taps, hidden_size]
};

// Called with the name and data of intermediate results ("layers.3.output" [tokens, hidden], ...);
// for parity tests.
using LayerObserver = std::function<void(std::string_view name, std::span<const float> values)>;

// Some tokens of a sequence with the hidden states before them, for a draft head.
struct DraftRow {
  Depth start;  // position of the first token, at least 1
  int first_token = 0;
  int tokens = 0;
  std::span<const PageId> pages;  // of positions 0 .. start + tokens - 1, in order
  bool logits = false;            // wanted for the last token
};

// A layer that predicts, from the hidden state at a position and the token after it, the token
// after that (multi-token prediction): the mtp.* tensors of the Qwen3.5 family.
class DraftHead {
 public:
  virtual ~DraftHead() = default;
  // `hidden` [tokens, hidden_size]: of the position before each token, after the target's final
  // norm; replaced by the head's own output, after its norm, which takes that place for a next
  // token. Keys and values go to `kv` at each token's position; position 0 has none and is not
  // attended to. `logits` as in Model::forward. One thread, not during forward(). At most
  // max_step_tokens tokens.
  virtual Status draft(std::span<const TokenId> tokens, std::span<const DraftRow> rows,
                       const KvView& kv, std::span<float> hidden, std::span<float> logits) = 0;

  // Whether draft_best() is built: draft(), which hands out of every row of logits its best token
  // alone: that of the largest logit, the smallest id among equals; -1 where one is not finite.
  //   best [rows with logits]
  virtual bool picks_best() const { return false; }
  virtual Status draft_best(std::span<const TokenId> /*tokens*/, std::span<const DraftRow> /*rows*/,
                            const KvView& /*kv*/, std::span<float> /*hidden*/,
                            std::span<TokenId> /*best*/) {
    return Error{"draft_best: not built for this device"};
  }
};

struct WeightMatrix;

class Model {
 public:
  // Loads a Hugging Face directory, as options.load_format says. `pool` and `ops` outlive the
  // model.
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
  virtual Status forward(const Batch& batch, const SequenceViews& memory, std::span<float> logits,
                         const HiddenTaps& hidden) = 0;
  Status forward(const Batch& batch, const SequenceViews& memory, std::span<float> logits) {
    return forward(batch, memory, logits, HiddenTaps{});
  }

  // Whether launch(), choose() and take() are built: for a model on a device, whose logits are far
  // from the host.
  virtual bool chooses_tokens() const { return false; }
  // forward() in three parts, of which only the last one waits. launch() puts a step on the device;
  // choose(), before the next launch(), has a token chosen there for every row of its logits;
  // take() hands out the tokens of the oldest such step, valid until the step after the next one
  // chooses, and fills `hidden`. At most two launched steps are not taken, and with hidden states
  // one. After forward(), or an error of one of these, there is none.
  //   choices [sum of rows' logits]
  virtual Status launch(const Batch& /*batch*/, const SequenceViews& /*memory*/,
                        const HiddenTaps& /*hidden*/) {
    return Error{"launch: not built for this device"};
  }
  virtual Status choose(std::span<const TokenChoice> /*choices*/) {
    return Error{"choose: not built for this device"};
  }
  virtual Result<std::span<const ChosenToken>> take() {
    return Error{"take: not built for this device"};
  }
  // The launched steps that are not taken will not be.
  virtual void forget_launched() {}

  // What turns tokens into hidden states, and normalised hidden states into logits; a drafter may
  // share them. [vocab_rows, hidden_size], as long as the model.
  virtual const WeightMatrix& embedding() const = 0;
  virtual const WeightMatrix& head() const = 0;

  // The model's own head for drafts, if options().draft_head loaded it; lives as long as the model.
  virtual DraftHead* draft_head() { return nullptr; }

  virtual void observe(LayerObserver observer) = 0;
};

}  // namespace replayssm
