// Which tokens have followed which: a trie of all short pieces of the texts that it was shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/strong_id.h"

namespace replayssm {

// Holds the pieces of up to `depth` tokens. Bounded: when half of `capacity` nodes are in use, it
// begins anew and keeps what it had until that is full, too. Not thread-safe.
class NgramTrie {
 public:
  // depth >= 2; capacity >= 2 * depth.
  NgramTrie(int depth, std::size_t capacity) : depth_(depth), capacity_(capacity) {}

  // The last of `text` is new. What precedes it was added before, or is not known.
  void add_last(std::span<const TokenId> text);

  // The token that came last after the longest end of `text` that is known, of at least `shortest`
  // tokens and less than depth; empty if there is none.
  std::optional<TokenId> next(std::span<const TokenId> text, int shortest) const;

  // What a full trie of this capacity takes, about: a node with its place in the table.
  static constexpr std::int64_t bytes(std::size_t capacity) {
    return static_cast<std::int64_t>(capacity) * 48;
  }

  void clear();
  std::size_t nodes() const { return newest_.size() + older_.size(); }
  int depth() const { return depth_; }

 private:
  // A node's identity is a hash of its tokens: two pieces with one hash would share what follows
  // them, which makes a draft worse and nothing wrong.
  using Nodes = std::unordered_map<std::uint64_t, TokenId>;  // the token that came last after it

  int depth_;
  std::size_t capacity_;
  Nodes newest_;
  Nodes older_;
};

}  // namespace replayssm
