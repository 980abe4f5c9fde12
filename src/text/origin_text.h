// Text that knows, byte by byte, whether it may be trusted: the template's author wrote it, or it
// came with a request. The mark travels with the byte through every operation on the text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "text/prompt.h"

namespace replayssm {

// A value: copies own their bytes.
class OriginText {
 public:
  OriginText() = default;
  OriginText(std::string bytes, bool trusted)
      : bytes_(std::move(bytes)), marks_(bytes_.size(), mark(trusted)) {}
  explicit OriginText(const RenderedPrompt& prompt) {
    for (const PromptPart& part : prompt) append(part.text, part.trusted);
  }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool trusted(std::size_t position) const { return marks_[position] == mark(true); }

  // Whether all of the bytes in [begin, end) are trusted.
  bool trusted(std::size_t begin, std::size_t end) const {
    return std::string_view(marks_).substr(begin, end - begin).find_first_not_of(mark(true)) ==
           std::string_view::npos;
  }

  void append(std::string_view bytes, bool trusted) {
    bytes_ += bytes;
    marks_.append(bytes.size(), mark(trusted));
  }
  void append(const OriginText& text) { append(text, 0, text.size()); }
  void append(const OriginText& text, std::size_t begin, std::size_t end) {
    bytes_.append(text.bytes_, begin, end - begin);
    marks_.append(text.marks_, begin, end - begin);
  }

  // The bytes in [begin, end).
  OriginText slice(std::size_t begin, std::size_t end) const {
    OriginText part;
    part.append(*this, begin, end);
    return part;
  }

  // Runs of one origin, none of them empty.
  RenderedPrompt parts() const {
    RenderedPrompt prompt;
    for (std::size_t begin = 0, end = 0; begin < size(); begin = end) {
      end = std::min(marks_.find_first_not_of(marks_[begin], begin), size());
      prompt.push_back({bytes_.substr(begin, end - begin), trusted(begin)});
    }
    return prompt;
  }

 private:
  static constexpr char mark(bool trusted) { return trusted ? 't' : 'u'; }

  std::string bytes_;
  std::string marks_;  // as long as bytes_
};

}  // namespace replayssm
