#include "grammar/reasoning_gate.h"

#include <algorithm>

namespace replayssm::grammar {
namespace {

// How much of the tag `bytes` ends with, if `matched` of it came before; and where in `bytes` the
// tag was complete.
std::pair<std::size_t, std::optional<std::size_t>> scan(std::string_view tag, std::size_t matched,
                                                        std::string_view bytes) {
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

std::shared_ptr<const std::vector<TokenId>> tokens_that_cross(const TokenTrie& vocabulary,
                                                              std::string_view tag) {
  auto tokens = std::make_shared<std::vector<TokenId>>();
  for (std::size_t id = 0; id < vocabulary.vocabulary_size(); ++id) {
    const std::string_view bytes = vocabulary.bytes_of(static_cast<TokenId>(id));
    const std::size_t last = bytes.find(tag.back());
    if (last != std::string_view::npos && last + 1 < bytes.size()) {
      tokens->push_back(static_cast<TokenId>(id));
    }
  }
  return tokens;
}

Error unfinished_call() {
  return Error{"grammar: the end of a tool call is not accepted before the call fits its schema"};
}

void set(std::span<std::uint32_t> bits, TokenId id, bool allowed) {
  const auto at = static_cast<std::uint32_t>(id);
  const std::uint32_t bit = 1u << (at % 32);
  allowed ? bits[at / 32] |= bit : bits[at / 32] &= ~bit;
}

}  // namespace

ReasoningGate::ReasoningGate(std::shared_ptr<ConstrainedTokens> tokens, Start start,
                             Tag end_of_reasoning, std::optional<Calls> calls)
    : tokens_(tokens),
      end_of_reasoning_(std::move(end_of_reasoning)),
      calls_(std::move(calls)),
      phase_(start == Start::in_reasoning ? Phase::reasoning
             : calls_                     ? Phase::text
                                          : Phase::grammar),
      grammar_(std::move(tokens)) {
  const TokenTrie& vocabulary = tokens_->vocabulary();
  if (phase_ == Phase::reasoning) {
    crossing_reasoning_ = tokens_that_cross(vocabulary, end_of_reasoning_.text);
  }
  if (calls_) crossing_open_ = tokens_that_cross(vocabulary, calls_->open.text);
}

void ReasoningGate::enter(Phase phase) {
  phase_ = phase;
  matched_ = 0;
  if (phase == Phase::grammar) grammar_ = grammar_.restarted();
}

Status ReasoningGate::take(std::string_view bytes) {
  while (phase_ != Phase::grammar) {
    const auto [matched, complete] = scan(awaited().text, matched_, bytes);
    matched_ = matched;
    if (!complete) return {};
    enter(phase_ == Phase::reasoning && calls_ ? Phase::text : Phase::grammar);
    bytes.remove_prefix(*complete);
  }
  if (!bytes.empty()) REPLAYSSM_TRY(grammar_.accept(bytes));
  if (calls_ && grammar_.complete()) enter(Phase::text);
  return {};
}

Status ReasoningGate::accept(TokenId id) {
  const TokenTrie& vocabulary = tokens_->vocabulary();
  if (phase_ == Phase::grammar) {
    if (!calls_) return grammar_.accept(id);
    if (calls_->close.token == id) {
      if (!grammar_.finished()) return unfinished_call();
      enter(Phase::text);
      return {};
    }
    if (vocabulary.is_end_token(id)) return unfinished_call();
    REPLAYSSM_TRY(grammar_.accept(id));
    if (!calls_->close.token && grammar_.complete()) enter(Phase::text);
    return {};
  }
  if (vocabulary.is_end_token(id)) {
    if (phase_ == Phase::text) return {};
    return Error{"grammar: the end is not accepted before the answer"};
  }
  if (awaited().token == id) {
    enter(phase_ == Phase::reasoning && calls_ ? Phase::text : Phase::grammar);
    return {};
  }
  const std::string_view bytes = vocabulary.bytes_of(id);
  if (bytes.empty()) {
    matched_ = 0;  // another control or added token
    return {};
  }
  const auto [matched, complete] = scan(awaited().text, matched_, bytes);
  if (!complete) {
    matched_ = matched;
    return {};
  }
  ReasoningGate next = *this;
  REPLAYSSM_TRY(next.take(bytes));
  *this = std::move(next);
  return {};
}

Status ReasoningGate::fill_mask(std::span<std::uint32_t> bits) const {
  const TokenTrie& vocabulary = tokens_->vocabulary();
  if (phase_ == Phase::grammar) {
    REPLAYSSM_TRY(grammar_.fill_mask(bits));
    if (!calls_) return {};
    for (const TokenId end : vocabulary.end_tokens()) set(bits, end, false);
    if (calls_->close.token && grammar_.finished()) set(bits, *calls_->close.token, true);
    return {};
  }
  std::fill(bits.begin(), bits.end(), 0u);
  const std::size_t size = vocabulary.vocabulary_size();
  for (std::size_t word = 0; word < size / 32; ++word) bits[word] = ~0u;
  if (size % 32 != 0) bits[size / 32] = (1u << (size % 32)) - 1;
  if (phase_ == Phase::reasoning) {
    for (const TokenId end : vocabulary.end_tokens()) set(bits, end, false);
  }
  for (const TokenId id : crossing()) {
    const std::string_view bytes = vocabulary.bytes_of(id);
    const auto [matched, complete] = scan(awaited().text, matched_, bytes);
    if (!complete || *complete == bytes.size()) continue;
    ReasoningGate next = *this;
    if (!next.take(bytes)) set(bits, id, false);
  }
  return {};
}

std::string ReasoningGate::position() const {
  if (phase_ == Phase::grammar) return "a" + grammar_.position();
  return fmt::format("{}{}", phase_ == Phase::reasoning ? 'r' : 't',
                     std::string_view(awaited().text).substr(0, matched_));
}

Status ReasoningGate::restore(std::string_view position) {
  const char kind = position.empty() ? ' ' : position.front();
  if (kind != 'r' && kind != 'a' && !(kind == 't' && calls_)) {
    return Error{"grammar position: it begins with none of r, t and a"};
  }
  const std::string_view text = position.substr(1);
  if (kind == 'a') {
    auto grammar = GrammarState::at(tokens_, text);
    if (!grammar.ok()) return grammar.error();
    enter(Phase::grammar);
    grammar_ = std::move(*grammar);
    return {};
  }
  const std::string_view tag = kind == 'r' ? end_of_reasoning_.text : calls_->open.text;
  if (!tag.starts_with(text) || text.size() == tag.size()) {
    return Error{"grammar position: its text does not begin the tag that is waited for"};
  }
  if (kind == 'r' && crossing_reasoning_ == nullptr) {
    crossing_reasoning_ = tokens_that_cross(tokens_->vocabulary(), end_of_reasoning_.text);
  }
  enter(kind == 'r' ? Phase::reasoning : Phase::text);
  grammar_ = grammar_.restarted();
  matched_ = text.size();
  return {};
}

}  // namespace replayssm::grammar
