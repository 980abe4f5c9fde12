// A grammar for the answer of a model that thinks first.
#pragma once

#include <cstdint>
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
// tokens that close the reasoning and go on with bytes that the grammar does not accept.
//
// A copy is a fork. Not for two threads at a time.
class ReasoningGate {
 public:
  enum class Start { in_answer, in_reasoning };

  struct ClosingTag {
    std::string text = "</think>";
    std::optional<TokenId> token;  // where the vocabulary has one for it
  };

  ReasoningGate(std::shared_ptr<ConstrainedTokens> tokens, Start start, ClosingTag tag);

  // As GrammarState's.
  bool accept(TokenId id);
  void fill_mask(std::span<std::uint32_t> bits) const;
  bool finished() const { return !in_reasoning_ && answer_.finished(); }
  bool complete() const { return !in_reasoning_ && answer_.complete(); }
  bool ended() const { return answer_.ended(); }

  bool in_reasoning() const { return in_reasoning_; }
  const GrammarState& answer() const { return answer_; }

  // Where the sequence is; enough, with what the constructor was given, to go on elsewhere.
  std::string position() const;
  // Goes on from there. An error, and no change, for anything but a position of the same grammar.
  Status restore(std::string_view position);

 private:
  // How much of the tag `bytes` ends with, if `matched` of it came before; and where in `bytes` the
  // tag was complete.
  std::pair<std::size_t, std::optional<std::size_t>> scan(std::size_t matched,
                                                          std::string_view bytes) const;

  std::shared_ptr<ConstrainedTokens> tokens_;
  ClosingTag tag_;
  std::vector<TokenId> closers_;  // tokens that might close the reasoning and go on
  GrammarState answer_;
  bool in_reasoning_;
  std::size_t matched_ = 0;  // of the tag, at the end of the reasoning so far
};

}  // namespace replayssm::grammar
