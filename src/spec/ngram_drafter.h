// Drafts without a model: what came last after the words before.
#pragma once

#include "spec/drafter.h"
#include "spec/ngram_trie.h"

namespace replayssm {

// Learns from the tokens of all sequences. A chain of drafts: each is the token that came last
// after the longest known end of the text with the drafts before it.
class NgramDrafter final : public Drafter {
 public:
  // Longest piece that is remembered, and nodes of the trie at most.
  static constexpr int kDepth = 18;
  static constexpr std::size_t kCapacity = std::size_t{1} << 19;
  // Of one token alone, what came after it says too little.
  static constexpr int kShortestMatch = 2;

  explicit NgramDrafter(int most_drafts) : most_drafts_(most_drafts), trie_(kDepth, kCapacity) {}

  int most_drafts() const override { return most_drafts_; }
  Status observe(std::span<const CommittedTokens> rows) override;
  Status propose(std::span<DraftRequest> rows) override;
  void clear() override { trie_.clear(); }

 private:
  int most_drafts_;
  NgramTrie trie_;
  std::vector<TokenId> text_;  // scratch
};

}  // namespace replayssm
