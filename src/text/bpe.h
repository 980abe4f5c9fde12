// Byte pair encoding: merges adjacent tokens of a word, the merge learnt earliest first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/strong_id.h"

namespace replayssm {

// Immutable once made; any number of threads may use it, each with a workspace of its own.
class Bpe {
 public:
  // `left` and `right`, where adjacent, become `result`. The merge's place in the list is its rank.
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId result;
  };

  // Scratch that one thread reuses over many words.
  class Workspace {
    friend class Bpe;
    struct Symbol {
      TokenId token;          // -1 once merged into the symbol before it
      std::int32_t previous;  // neighbours by index; -1 at the ends
      std::int32_t next;
    };
    struct Candidate {
      std::uint64_t order;  // rank << 32 | index of the left symbol: the smallest is merged first
      TokenId result;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // `byte_tokens[b]` is the token of the single byte b. Of several merges of one pair the last
  // counts, as in the `tokenizers` package.
  Bpe(const std::array<TokenId, 256>& byte_tokens, std::span<const Merge> merges);

  // Appends the tokens of one word (any bytes, at most 2^31 - 1). O(n log n) in its length.
  void encode(std::string_view word, Workspace& workspace, std::vector<TokenId>& out) const;

 private:
  // An open-addressing table from a pair to its merge: a lookup is one cache line, and words are
  // nothing but lookups.
  struct Slot {
    std::uint64_t pair;
    std::uint32_t rank;
    TokenId result;
  };

  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t first_slot(std::uint64_t pair) const;
  const Slot* find(TokenId left, TokenId right) const;
  void propose(Workspace& workspace, std::int32_t left) const;

  std::array<TokenId, 256> byte_tokens_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  int shift_ = 0;            // 64 - log2(slots)
};

}  // namespace replayssm
