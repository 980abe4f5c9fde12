#include "grammar/reasoning_gate.h"

#include <algorithm>

namespace replayssm::grammar {

ReasoningGate::ReasoningGate(std::shared_ptr<ConstrainedTokens> tokens, Start start, ClosingTag tag)
    : tokens_(tokens),
      tag_(std::move(tag)),
      answer_(std::move(tokens)),
      in_reasoning_(start == Start::in_reasoning) {
  if (!in_reasoning_) return;
  const TokenTrie& vocabulary = tokens_->vocabulary();
  for (std::size_t id = 0; id < vocabulary.vocabulary_size(); ++id) {
    const std::string_view bytes = vocabulary.bytes_of(static_cast<TokenId>(id));
    const std::size_t last = bytes.find(tag_.text.back());
    if (last != std::string_view::npos && last + 1 < bytes.size()) {
      closers_.push_back(static_cast<TokenId>(id));
    }
  }
}

std::pair<std::size_t, std::optional<std::size_t>> ReasoningGate::scan(
    std::size_t matched, std::string_view bytes) const {
  const std::string_view tag = tag_.text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    // The longest beginning of the tag that the text ends with; tags are short.
    std::size_t n = matched;
    while (n > 0 && tag[n] != bytes[i]) {
      std::size_t shorter = n - 1;
      while (shorter > 0 && tag.substr(0, shorter) != tag.substr(n - shorter, shorter)) --shorter;
      n = shorter;
    }
    matched = tag[n] == bytes[i] ? n + 1 : 0;
    if (matched == tag.size()) return {0, i + 1};
  }
  return {matched, std::nullopt};
}

bool ReasoningGate::accept(TokenId id) {
  if (!in_reasoning_) return answer_.accept(id);
  const TokenTrie& vocabulary = tokens_->vocabulary();
  if (vocabulary.is_end_token(id)) return false;
  if (tag_.token == id) {
    in_reasoning_ = false;
    return true;
  }
  const std::string_view bytes = vocabulary.bytes_of(id);
  if (bytes.empty()) {
    matched_ = 0;  // another control or added token
    return true;
  }
  const auto [matched, closed] = scan(matched_, bytes);
  if (closed && !answer_.accept(bytes.substr(*closed))) return false;
  matched_ = matched;
  in_reasoning_ = !closed;
  return true;
}

void ReasoningGate::fill_mask(std::span<std::uint32_t> bits) const {
  if (!in_reasoning_) return answer_.fill_mask(bits);
  const TokenTrie& vocabulary = tokens_->vocabulary();
  std::fill(bits.begin(), bits.end(), 0u);
  const std::size_t size = vocabulary.vocabulary_size();
  for (std::size_t word = 0; word < size / 32; ++word) bits[word] = ~0u;
  if (size % 32 != 0) bits[size / 32] = (1u << (size % 32)) - 1;
  const auto forbid = [&](TokenId id) {
    const auto at = static_cast<std::uint32_t>(id);
    bits[at / 32] &= ~(1u << (at % 32));
  };
  for (const TokenId end : vocabulary.end_tokens()) forbid(end);
  for (const TokenId id : closers_) {
    const std::string_view bytes = vocabulary.bytes_of(id);
    const auto [matched, closed] = scan(matched_, bytes);
    if (!closed || *closed == bytes.size()) continue;
    GrammarState answer = answer_;
    if (!answer.accept(bytes.substr(*closed))) forbid(id);
  }
}

std::string ReasoningGate::position() const {
  if (in_reasoning_) return fmt::format("r{}", std::string_view(tag_.text).substr(0, matched_));
  return fmt::format("a{}", answer_.position());
}

Status ReasoningGate::restore(std::string_view position) {
  const bool reasoning = position.starts_with('r');
  if (!reasoning && !position.starts_with('a')) {
    return Error{"grammar position: it begins with neither r nor a"};
  }
  const std::string_view text = position.substr(1);
  if (reasoning) {
    if (!std::string_view(tag_.text).starts_with(text) || text.size() == tag_.text.size()) {
      return Error{"grammar position: its text does not begin the closing tag"};
    }
    answer_ = GrammarState(tokens_);
    matched_ = text.size();
  } else {
    auto answer = GrammarState::at(tokens_, text);
    if (!answer.ok()) return answer.error();
    answer_ = std::move(*answer);
    matched_ = 0;
  }
  in_reasoning_ = reasoning;
  return {};
}

}  // namespace replayssm::grammar
