#include "spec/ngram_trie.h"

#include <algorithm>
#include <utility>

#include "core/random_stream.h"

namespace replayssm {
namespace {

// Of a piece with one more token in front.
std::uint64_t extended(std::uint64_t hash, TokenId token) {
  return mix_bits(hash * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(token) + 1);
}

// Calls f(length, hash) for the ends of `text` of 1 .. most tokens, while it returns true.
template <class F>
void for_each_end(std::span<const TokenId> text, int most, F&& f) {
  std::uint64_t hash = 0;
  const int lengths = std::min(most, static_cast<int>(text.size()));
  for (int length = 1; length <= lengths; ++length) {
    hash = extended(hash, text[text.size() - static_cast<std::size_t>(length)]);
    if (!f(length, hash)) return;
  }
}

}  // namespace

void NgramTrie::add_last(std::span<const TokenId> text) {
  if (text.size() < 2) return;
  if (newest_.size() + static_cast<std::size_t>(depth_) > capacity_ / 2) {
    older_ = std::exchange(newest_, {});
  }
  for_each_end(text.first(text.size() - 1), depth_ - 1, [&](int /*length*/, std::uint64_t hash) {
    newest_[hash] = text.back();
    return true;
  });
}

std::optional<TokenId> NgramTrie::next(std::span<const TokenId> text, int shortest) const {
  std::optional<TokenId> found;
  for_each_end(text, depth_ - 1, [&](int length, std::uint64_t hash) {
    // A piece is known only if all shorter ends of it are.
    const auto fresh = newest_.find(hash);
    const auto old = fresh == newest_.end() ? older_.find(hash) : fresh;
    if (fresh == newest_.end() && old == older_.end()) return false;
    if (length >= shortest) found = old->second;
    return true;
  });
  return found;
}

void NgramTrie::clear() {
  newest_.clear();
  older_.clear();
}

}  // namespace replayssm
