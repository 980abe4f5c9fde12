// Drafts by the model's own draft head, one after the other.
#pragma once

#include "core/aligned_buffer.h"
#include "model/model.h"
#include "spec/draft_chooser.h"

namespace replayssm {

// A row of the head's keys and values belongs to a token: it is made from the token and the
// target's hidden state before it, and written where the token stands. So the rows of committed
// tokens follow from these tokens alone and can be shared as the target's can. Rows of drafts are
// made from the head's own output; what observe() is told replaces them.
//
// But for one: the first token after what a sequence took over from the cache has no hidden state
// at hand, and its row is made from zeros. That makes drafts worse and nothing wrong.
class MtpDrafter final : public Drafter {
 public:
  struct Sizes {
    int most_drafts = 1;
    int step_tokens = 1;  // of observe(), all rows together
    int rows = 1;         // of propose()
  };
  // `head` and the memory behind `kv` outlive it. `sampled`: drafts carry the distribution they
  // are drawn from, where the request draws its tokens.
  MtpDrafter(DraftHead& head, const KvView& kv, const ModelConfig& config, const Sizes& sizes,
             bool sampled);

  int most_drafts() const override { return sizes_.most_drafts; }
  std::span<const int> taps() const override { return kTaps; }
  Status observe(std::span<const CommittedTokens> rows) override;
  Status propose(std::span<DraftRequest> rows) override;

  // Bytes that an instance owns.
  static std::int64_t bytes(const ModelConfig& config, const Sizes& sizes);

 private:
  static constexpr int kTaps[] = {kTapFinalNorm};

  void add_row(const DraftedSequence& sequence, int first, int count, bool logits);
  void add_token(TokenId token, const float* hidden);
  Status run(int logit_rows, bool pick_best);

  DraftHead& head_;
  KvView kv_;
  std::size_t width_;
  std::size_t vocab_size_;
  std::size_t vocab_rows_;
  Sizes sizes_;
  DraftChooser chooser_;

  // Of the call in progress.
  std::vector<TokenId> tokens_;
  std::vector<DraftRow> rows_;
  AlignedBuffer<float> hidden_;    // [step_tokens or rows, hidden_size]
  AlignedBuffer<float> logits_;    // [rows, vocab_rows]
  std::vector<TokenId> best_;      // [rows], where the head picks them
  std::vector<std::size_t> open_;  // requests that want another draft
};

}  // namespace replayssm
