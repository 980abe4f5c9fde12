// A prompt as a chat template renders it: text that remembers which of its bytes the template wrote
// and which came from a message. Only the template's own bytes may become control tokens.
#pragma once

#include <string>
#include <vector>

namespace replayssm {

// A run of UTF-8 text of one origin. `trusted` text was written by the template's author; any other
// text came with the request (messages, tools, arguments) and stays plain text whatever it spells.
struct PromptPart {
  std::string text;
  bool trusted = false;

  bool operator==(const PromptPart&) const = default;
};

// The parts in order. A control token is recognised only where all of its bytes are trusted;
// everything else is encoded over the boundaries, as one text.
using RenderedPrompt = std::vector<PromptPart>;

// The parts' text joined, for logs and tests.
inline std::string text_of(const RenderedPrompt& prompt) {
  std::string text;
  for (const PromptPart& part : prompt) text += part.text;
  return text;
}

}  // namespace replayssm
