// Drafts by a block drafter, a whole block in one pass.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/block_draft_model.h"
#include "model/candidate_selector.h"
#include "model/markov_head.h"
#include "spec/draft_chooser.h"
#include "spec/drafter.h"

namespace replayssm {

// A drafter's rows belong to positions: the row at p is made from the target's features at p and
// nothing else, and observe() writes it once p is committed. So rows of committed tokens follow
// from these tokens alone and can be shared as the target's can; rolling back is doing nothing.
// What a block adds for its own rows is kept outside the pages.
//
// A block is always run whole, as the drafter was trained, also where fewer drafts are wanted.
class BlockDrafter final : public Drafter {
 public:
  struct Sizes {
    int most_drafts = 1;
    int step_tokens = 1;  // of observe(), all rows together
    int rows = 1;         // of propose()
  };

  // `target` and `pool` outlive it, `ops` too; `kv`: one view for each of its layers. `options`:
  // those of the target.
  BlockDrafter(const BlockDraftConfig& config, BlockDraftWeights weights, const Model& target,
               ModelOptions options, ThreadPool& pool, LinearOps& ops, std::vector<KvView> kv,
               const Sizes& sizes, bool sampled);

  int most_drafts() const override { return sizes_.most_drafts; }
  bool has_confidence() const override { return markov_ && markov_->has_confidence(); }
  std::span<const int> taps() const override { return model_.config().target_layers; }
  Status observe(std::span<const CommittedTokens> rows) override;
  Status propose(std::span<DraftRequest> rows) override;

  // Bytes that an instance owns beside its weights. `options` and `threads`: the target's.
  static std::int64_t bytes(const BlockDraftConfig& config, const ModelOptions& options,
                            int threads, const Sizes& sizes);

 private:
  Status draft_blocks(std::span<DraftRequest* const> requests);

  BlockDraftWeights weights_;
  BlockDraftModel model_;
  std::vector<KvView> kv_;
  Sizes sizes_;
  int together_;  // blocks of one pass
  DraftChooser chooser_;
  std::optional<CandidateSelector> selector_;
  std::optional<MarkovHead> markov_;

  // Of the call in progress.
  std::vector<ContextRow> context_;
  std::vector<float> features_;  // of observe(), row after row
  std::vector<BlockRow> blocks_;
  std::vector<DraftRequest*> wanted_;
  std::vector<TokenId> before_;  // the newest token of each block
  std::vector<double> confidences_;
  AlignedBuffer<float> hidden_;  // [together, drafts, hidden_size]
  AlignedBuffer<float> logits_;  // [together, drafts, vocab_rows]
};

}  // namespace replayssm
