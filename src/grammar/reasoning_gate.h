// A grammar for the answer of a model that thinks first, or for the tool calls inside one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace replayssm::grammar {

// Lets the reasoning be as it is and holds the grammar to what follows `</think>`. While the model
// reasons every token is allowed but two kinds: end tokens, since the answer is still to come, and
// tokens that close the reasoning and go on with bytes that may not follow.
//
// With Calls the answer is free text, and the grammar holds from each opening tag to its closing
// tag. There it may not end.
//
// A copy is a fork. Not for two threads at a time.
class ReasoningGate {
 public:
  enum class Start { in_answer, in_reasoning };

  struct Tag {
    std::string text = "</think>";
    std::optional<TokenId> token;  // where the vocabulary has one for it
  };
  // The grammar ends with the closing tag's text where there is no token for it.
  struct Calls {
    Tag open;
    Tag close;
  };

  ReasoningGate(std::shared_ptr<ConstrainedTokens> tokens, Start start, Tag end_of_reasoning,
                std::optional<Calls> calls = std::nullopt);

  // As GrammarState's.
  Status accept(TokenId id);
  Status fill_mask(std::span<std::uint32_t> bits) const;
  bool finished() const {
    return phase_ == Phase::text || (phase_ == Phase::grammar && !calls_ && grammar_.finished());
  }
  bool complete() const { return phase_ == Phase::grammar && !calls_ && grammar_.complete(); }
  // An end token was taken. Free text may go on after one, where end tokens are ignored.
  bool ended() const { return grammar_.ended(); }

  // The vocabulary that masks are for.
  const TokenTrie& vocabulary() const { return tokens_->vocabulary(); }

  bool in_reasoning() const { return phase_ == Phase::reasoning; }
  // Where the grammar is, in the answer or the newest call.
  const GrammarState& answer() const { return grammar_; }

  // Where the sequence is; enough, with what the constructor was given, to go on elsewhere.
  std::string position() const;
  // Goes on from there. An error, and no change, for anything but a position of the same grammar.
  Status restore(std::string_view position);

 private:
  enum class Phase { reasoning, text, grammar };

  const Tag& awaited() const {
    return phase_ == Phase::reasoning ? end_of_reasoning_ : calls_->open;
  }
  // Tokens that might complete the awaited tag and go on.
  const std::vector<TokenId>& crossing() const {
    return phase_ == Phase::reasoning ? *crossing_reasoning_ : *crossing_open_;
  }
  void enter(Phase phase);
  // Where it fails it is in any state.
  Status take(std::string_view bytes);

  std::shared_ptr<ConstrainedTokens> tokens_;
  Tag end_of_reasoning_;
  std::optional<Calls> calls_;
  std::shared_ptr<const std::vector<TokenId>> crossing_reasoning_;
  std::shared_ptr<const std::vector<TokenId>> crossing_open_;
  Phase phase_;
  GrammarState grammar_;
  std::size_t matched_ = 0;  // of the awaited tag, at the end of the text so far
};

}  // namespace replayssm::grammar
