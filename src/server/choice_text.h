// From the tokens of one choice to what the client sees of them. Streamed and whole answers are
// made of the same deltas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "server/json.h"
#include "text/detokenizer.h"
#include "text/reasoning_parser.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"
#include "text/tool_call_parser.h"

namespace replayssm::server {

// A token of the output with its log-probabilities, and where its text begins in the choice's text,
// in characters.
struct ScoredToken {
  TokenId token = 0;
  std::size_t text_offset = 0;
  TokenLogprobs logprobs;
};

// What became certain. `calls` holds ToolCallEvent::Kind::begin and ::arguments only.
struct ChoiceDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallEvent> calls;
  std::vector<ScoredToken> tokens;
  int output_tokens = 0;  // of the choice so far, with those that are still held back

  bool empty() const {
    return reasoning.empty() && content.empty() && calls.empty() && tokens.empty();
  }
};

struct ChoiceTextOptions {
  // How calls of tools are found in the answer.
  enum class Calls {
    none,        // it has none
    parsed,      // in the format `call_format`
    named,       // the answer is the arguments of one call of `call_name`, as the grammar made it
    json_array,  // the answer is [{"name", "arguments"}, ..], as the grammar made it
  };

  std::vector<TokenId> prompt_tail;  // its last tokens: they may end inside a character
  std::vector<std::string> stop;
  int min_tokens = 0;  // no stop text counts that is complete before so many tokens
  bool include_stop_text = false;
  bool skip_special_tokens = true;
  std::optional<ReasoningParser::Start> reasoning;  // empty: nothing is split off
  Calls calls = Calls::none;
  std::string call_format;
  std::string call_name;
  Json tools;
  bool one_call = false;  // the choice ends after its first call
};

// Detokenizer, StopMatcher, ReasoningParser, ToolCallParser in a row. One object a choice; not for
// two threads at a time.
class ChoiceText {
 public:
  // `tokenizer` outlives the choice. `id_seed` makes the ids of calls. Errors: the parsers'.
  static Result<ChoiceText> make(const Tokenizer& tokenizer,
                                 std::shared_ptr<const ChoiceTextOptions> options,
                                 std::uint64_t id_seed);

  // Ignored once stopped() is true.
  ChoiceDelta push(TokenId token, std::optional<TokenLogprobs> logprobs = std::nullopt);
  // What was held back. Bytes of a character that never became complete are dropped.
  ChoiceDelta finish();

  // A stop string, or the only call that was asked for, is complete: the rest of the tokens do not
  // count.
  bool stopped() const { return stop_.stopped() || call_complete_; }
  bool called() const { return calls_seen_ > 0; }
  int tokens() const { return tokens_; }
  int reasoning_tokens() const { return reasoning_tokens_; }

 private:
  using Calls = ChoiceTextOptions::Calls;

  ChoiceText(const Tokenizer& tokenizer, std::shared_ptr<const ChoiceTextOptions> options,
             StopMatcher stop);

  void split(std::string_view text, bool last, ChoiceDelta& delta);
  void find_calls(std::string_view text, bool last, ChoiceDelta& delta);
  void take(std::vector<ToolCallEvent> events, ChoiceDelta& delta);
  void take_named(std::string_view text, ChoiceDelta& delta);
  void take_json_array(ChoiceDelta& delta);
  std::string call_id() const;
  void release_tokens(bool all, ChoiceDelta& delta);

  Detokenizer detokenizer_;
  StopMatcher stop_;
  std::optional<ReasoningParser> reasoning_;
  std::optional<ToolCallParser> calls_;
  std::shared_ptr<const ChoiceTextOptions> options_;  // of all choices
  std::uint64_t id_seed_ = 0;

  int tokens_ = 0;
  int reasoning_tokens_ = 0;
  int calls_seen_ = 0;
  bool call_complete_ = false;
  std::string held_answer_;       // Calls::json_array
  std::size_t pushed_bytes_ = 0;  // of text, by the detokenizer
  std::size_t pushed_chars_ = 0;
  std::size_t released_bytes_ = 0;  // of these, by the stop matcher
  struct Waiting {
    std::size_t begin;  // in bytes
    ScoredToken token;
  };
  std::deque<Waiting> waiting_;
};

// A character has at most four bytes, and so tokens.
inline constexpr std::size_t kMostCharacterTokens = 4;

// Characters of valid UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace replayssm::server
