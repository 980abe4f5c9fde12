// Stop strings in a stream of text: what may be shown, and when to stop.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace replayssm {

// Watches one stream for several stop strings at once. The first stop string to be complete ends
// the stream; of several that end at the same byte the longest counts. Text that may still turn
// out to be the beginning of a stop string is held back, so nothing of a stop string is ever
// released before it is known to be none.
//
// What push() and finish() return concatenates to the same text for every split of the input.
// Released pieces begin and end between characters if stop strings and input are valid UTF-8 and
// every push is whole characters. One object a stream; not for two threads at a time.
class StopMatcher {
 public:
  enum class MatchedText { excluded, included };

  // Refuses an empty stop string; no stop string at all is accepted and matches nothing. A repeated
  // stop string counts once.
  static Result<StopMatcher> make(const std::vector<std::string>& stop_strings,
                                  MatchedText matched_text = MatchedText::excluded);

  // The text that is certain to precede every later match. After a match, always empty.
  std::string push(std::string_view text);

  // Ends the stream: what was held back, since nothing can complete it any more. Empty after a
  // match.
  std::string finish();

  // The stop string that ended the stream, by content; nothing while none has.
  const std::optional<std::string>& matched() const { return matched_; }
  bool stopped() const { return matched_.has_value(); }

  // Bytes pushed but neither released nor dropped by a match.
  std::size_t held_bytes() const { return held_.size(); }

 private:
  // One stop string and how much of it the text seen so far ends with. `fallback[n]` is the longest
  // proper prefix of text that is also a suffix of its first n bytes (Knuth, Morris, Pratt).
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;
    std::size_t matched = 0;

    // Takes one byte; true when the stop string is complete.
    bool advance(char byte);
  };

  StopMatcher(std::vector<Pattern> patterns, MatchedText matched_text)
      : patterns_(std::move(patterns)), matched_text_(matched_text) {}

  std::vector<Pattern> patterns_;
  MatchedText matched_text_;
  std::string held_;  // the longest suffix of the input that begins a stop string
  std::optional<std::string> matched_;
};

}  // namespace replayssm
