// A vocabulary laid out for asking which of its tokens may come next.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/strong_id.h"

namespace replayssm::grammar {

// The tokens' bytes as a prefix tree in depth-first order: a walk goes through one array and skips
// a subtree by one jump. Immutable; any number of threads may read it.
class TokenTrie {
 public:
  struct Node {
    std::uint32_t skip = 0;         // the first node behind the subtree
    std::uint32_t first_token = 0;  // tokens()[first_token..last_token) end here
    std::uint32_t last_token = 0;
    std::uint16_t depth = 0;  // 1 for the first byte
    std::uint8_t byte = 0;
  };

  // Tokens longer than this are never allowed.
  static constexpr std::size_t kMostBytes = 1024;

  // `token_bytes[id]`: what token `id` stands for; empty for tokens that are never allowed in
  // constrained text (control tokens, added tokens such as "<think>", padding). `end_tokens`: those
  // that end a generation; allowed where the text may end; ids outside the vocabulary are left
  // out. The bytes are copied.
  TokenTrie(std::span<const std::string_view> token_bytes, std::span<const TokenId> end_tokens);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens() const { return tokens_; }
  // Without the tokens of plain_tokens().
  std::span<const Node> nodes_beside_plain() const { return beside_plain_; }
  // Tokens of whole characters that may stand anywhere inside a JSON string: no `"`, no `\`, no
  // controls. One bit a token, as in a mask.
  std::span<const std::uint32_t> plain_tokens() const { return plain_; }
  // Sets the bits of the plain tokens of at most that many characters.
  void allow_plain_tokens(std::size_t most_characters, std::span<std::uint32_t> bits) const;

  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  bool is_end_token(TokenId id) const;

  // Empty for ids that are never allowed or not in the vocabulary.
  std::string_view bytes_of(TokenId id) const;
  std::size_t vocabulary_size() const { return offsets_.size() - 1; }
  std::size_t mask_words() const { return (vocabulary_size() + 31) / 32; }
  std::size_t most_depth() const { return most_depth_; }

 private:
  void sort_plain_tokens();
  std::vector<Node> build(std::span<const TokenId> sorted, std::uint32_t first) const;

  std::vector<char> bytes_;
  std::vector<std::uint32_t> offsets_;  // [vocabulary_size + 1] into bytes_
  std::vector<TokenId> tokens_;         // all, then those beside the plain ones; each sorted
  std::vector<Node> nodes_;
  std::vector<Node> beside_plain_;
  std::vector<std::uint32_t> plain_;
  std::vector<TokenId> plain_by_length_;      // in characters
  std::vector<std::uint32_t> length_begins_;  // length_begins_[n]: the first of n characters
  std::vector<std::vector<std::uint32_t>> plain_up_to_;  // masks for 0, 1, .. characters
  std::vector<TokenId> end_tokens_;
  std::size_t most_depth_ = 0;
};

}  // namespace replayssm::grammar
