#include "spec/ngram_drafter.h"

#include <algorithm>

namespace replayssm {

Status NgramDrafter::observe(std::span<const CommittedTokens> rows) {
  for (const CommittedTokens& row : rows) {
    for (int i = 0; i < row.count; ++i) {
      trie_.add_last(row.sequence.tokens.first(static_cast<std::size_t>(row.first + i) + 1));
    }
  }
  return {};
}

Status NgramDrafter::propose(std::span<DraftRequest> rows) {
  for (DraftRequest& row : rows) {
    const std::span<const TokenId> tokens = row.sequence.tokens;
    const auto end = std::min(tokens.size(), static_cast<std::size_t>(kDepth));
    const std::span<const TokenId> newest = tokens.last(end);
    text_.assign(newest.begin(), newest.end());
    for (int i = 0; i < std::min(row.most, most_drafts_); ++i) {
      const auto next = trie_.next(text_, kShortestMatch);
      if (!next) break;
      row.drafts.push_back({*next, {}});
      text_.push_back(*next);
    }
  }
  return {};
}

}  // namespace replayssm
