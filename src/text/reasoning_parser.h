// Splits what a thinking model writes into its reasoning and its answer.
#pragma once

#include <string>
#include <string_view>

namespace replayssm {

// New text of each kind; either may be empty.
struct ReasoningDelta {
  std::string reasoning;
  std::string content;

  bool empty() const { return reasoning.empty() && content.empty(); }
};

// Qwen3's form: reasoning, then `</think>`, then the answer. The reasoning is opened by the prompt
// (`Start::in_reasoning`) or by a `<think>` that nothing but whitespace precedes. There is one
// reasoning at most: once the answer has begun, tags are text like any other.
//
// The tags belong to neither part, nor do the line breaks that the chat template puts around them:
// those after `<think>`, before `</think>` and after `</think>`. Everything else comes out
// unchanged and in order; text without tags passes through. The parts are the same for every split
// of the input. One object a stream; not for two threads at a time.
class ReasoningParser {
 public:
  enum class Start { in_content, in_reasoning };

  explicit ReasoningParser(Start start);

  // The text whose kind is certain.
  ReasoningDelta push(std::string_view text);

  // Ends the stream: what was held back in case it became a tag. Reasoning that was not closed
  // stays reasoning.
  ReasoningDelta finish();

  // Whether the next byte would be reasoning, as far as is known.
  bool in_reasoning() const { return phase_ == Phase::opening || phase_ == Phase::reasoning; }

 private:
  enum class Phase {
    before,     // nothing but whitespace so far; `<think>` may follow
    opening,    // reasoning has begun, nothing but line breaks of it so far
    reasoning,  // inside, up to `</think>`
    closing,    // after `</think>`, line breaks are dropped
    content,
  };

  // Takes what it can from the front of pending_; false when it needs more text first.
  bool step(ReasoningDelta& out);

  Phase phase_;
  std::string pending_;  // seen, not decided
};

}  // namespace replayssm
