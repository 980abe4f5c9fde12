#include "grammar/token_trie.h"

#include <algorithm>

namespace replayssm::grammar {
namespace {

bool plain_text(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x20 || lead == '"' || lead == '\\') return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead < 0xc2 || lead > 0xf4) return false;
    const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      const unsigned low = k > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
      const unsigned high = k > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
      if (byte < low || byte > high) return false;
    }
    i += length;
  }
  return true;
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string_view> token_bytes,
                     std::span<const TokenId> end_tokens) {
  for (const TokenId id : end_tokens) {
    const bool known = id >= 0 && static_cast<std::size_t>(id) < token_bytes.size();
    if (known) end_tokens_.push_back(id);
  }
  offsets_.push_back(0);
  std::vector<TokenId> sorted;
  for (std::size_t id = 0; id < token_bytes.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    const std::string_view text = token_bytes[id];
    if (!text.empty() && text.size() <= kMostBytes && !is_end_token(token)) {
      bytes_.insert(bytes_.end(), text.begin(), text.end());
      sorted.push_back(token);
    }
    offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
  std::sort(sorted.begin(), sorted.end(),
            [&](TokenId a, TokenId b) { return bytes_of(a) < bytes_of(b); });
  plain_.assign(mask_words(), 0);
  std::vector<TokenId> beside;
  for (const TokenId token : sorted) {
    most_depth_ = std::max(most_depth_, bytes_of(token).size());
    const auto id = static_cast<std::uint32_t>(token);
    if (plain_text(bytes_of(token))) {
      plain_[id / 32] |= 1u << (id % 32);
    } else {
      beside.push_back(token);
    }
  }
  sort_plain_tokens();
  nodes_ = build(sorted, 0);
  beside_plain_ = build(beside, static_cast<std::uint32_t>(sorted.size()));
  tokens_ = std::move(sorted);
  tokens_.insert(tokens_.end(), beside.begin(), beside.end());
}

void TokenTrie::sort_plain_tokens() {
  // A mask for each of the lengths that most tokens have; the few longer ones one by one.
  constexpr std::size_t kMasks = 16;
  const auto length = [&](TokenId token) {
    std::size_t characters = 0;
    for (const char c : bytes_of(token))
      characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    return characters;
  };
  std::vector<std::vector<TokenId>> by_length(2);
  for (std::size_t id = 0; id < vocabulary_size(); ++id) {
    if ((plain_[id / 32] >> (id % 32) & 1u) == 0) continue;
    const std::size_t characters = length(static_cast<TokenId>(id));
    if (by_length.size() <= characters) by_length.resize(characters + 1);
    by_length[characters].push_back(static_cast<TokenId>(id));
  }
  plain_up_to_.assign(1, std::vector<std::uint32_t>(mask_words(), 0));
  for (std::size_t n = 0; n < by_length.size(); ++n) {
    length_begins_.push_back(static_cast<std::uint32_t>(plain_by_length_.size()));
    plain_by_length_.insert(plain_by_length_.end(), by_length[n].begin(), by_length[n].end());
    if (n == 0 || n > kMasks) continue;
    plain_up_to_.push_back(plain_up_to_.back());
    for (const TokenId token : by_length[n]) {
      const auto id = static_cast<std::uint32_t>(token);
      plain_up_to_.back()[id / 32] |= 1u << (id % 32);
    }
  }
  length_begins_.push_back(static_cast<std::uint32_t>(plain_by_length_.size()));
}

void TokenTrie::allow_plain_tokens(std::size_t most_characters,
                                   std::span<std::uint32_t> bits) const {
  const std::size_t masked = std::min(most_characters, plain_up_to_.size() - 1);
  const std::vector<std::uint32_t>& mask = plain_up_to_[masked];
  for (std::size_t word = 0; word < mask.size(); ++word) bits[word] |= mask[word];
  const std::size_t longest = length_begins_.size() - 2;
  const std::size_t end = length_begins_[std::min(most_characters, longest) + 1];
  for (std::size_t i = length_begins_[std::min(masked, longest) + 1]; i < end; ++i) {
    const auto id = static_cast<std::uint32_t>(plain_by_length_[i]);
    bits[id / 32] |= 1u << (id % 32);
  }
}

// Sorted texts list the nodes in depth-first order: each text adds what it does not share with the
// text before it.
std::vector<TokenTrie::Node> TokenTrie::build(std::span<const TokenId> sorted,
                                              std::uint32_t first) const {
  std::vector<Node> nodes;
  std::vector<std::uint32_t> path;  // the nodes of the text before
  std::string_view before;
  const auto close = [&](std::size_t depth) {
    while (path.size() > depth) {
      nodes[path.back()].skip = static_cast<std::uint32_t>(nodes.size());
      path.pop_back();
    }
  };
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::string_view text = bytes_of(sorted[i]);
    const auto place = first + static_cast<std::uint32_t>(i);
    const auto fork = std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first;
    const auto shared = static_cast<std::size_t>(fork - text.begin());
    if (shared == text.size()) {  // the same text again
      nodes[path.back()].last_token = place + 1;
      continue;
    }
    close(shared);
    for (std::size_t k = shared; k < text.size(); ++k) {
      path.push_back(static_cast<std::uint32_t>(nodes.size()));
      nodes.push_back(
          {0, place, place, static_cast<std::uint16_t>(k + 1), static_cast<std::uint8_t>(text[k])});
    }
    nodes[path.back()].last_token = place + 1;
    before = text;
  }
  close(0);
  return nodes;
}

bool TokenTrie::is_end_token(TokenId id) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end();
}

std::string_view TokenTrie::bytes_of(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) + 1 >= offsets_.size()) return {};
  const auto at = static_cast<std::size_t>(id);
  return {bytes_.data() + offsets_[at], offsets_[at + 1] - offsets_[at]};
}

}  // namespace replayssm::grammar
