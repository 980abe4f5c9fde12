#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace replayssm {
namespace {

std::size_t start_of_character_before(std::string_view text, std::size_t end) {
  do {
    --end;
  } while (end > 0 && is_continuation(text[end]));
  return end;
}

bool inside_word(std::string_view text, std::size_t begin, std::size_t end) {
  const bool word_before =
      begin > 0 && is_word_character(code_point_at(text, start_of_character_before(text, begin)));
  const bool word_after = end < text.size() && is_word_character(code_point_at(text, end));
  return word_before || word_after;
}

// Moves `begin` down over white space, not below `limit`.
std::size_t strip_left(std::string_view text, std::size_t begin, std::size_t limit) {
  while (begin > limit) {
    const std::size_t before = start_of_character_before(text, begin);
    if (!is_white_space(code_point_at(text, before))) break;
    begin = before;
  }
  return std::max(begin, limit);
}

std::size_t strip_right(std::string_view text, std::size_t end) {
  while (end < text.size() && is_white_space(code_point_at(text, end))) {
    end += character_bytes(text[end]);
  }
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const char first = token.content[0];
    if (first_bytes_.find(first) == std::string::npos) first_bytes_ += first;
    by_first_byte_[static_cast<unsigned char>(first)].push_back(std::move(token));
  }
}

const AddedToken* AddedTokenMatcher::longest_at(const OriginText& text,
                                                std::size_t position) const {
  const std::string_view rest = std::string_view(text.bytes()).substr(position);
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(rest[0])]) {
    if (rest.starts_with(token.content) &&
        text.trusted(position, position + token.content.size())) {
      return &token;
    }
  }
  return nullptr;
}

std::vector<AddedTokenMatcher::Match> AddedTokenMatcher::find(const OriginText& text) const {
  std::vector<Match> matches;
  if (first_bytes_.empty()) return matches;
  const std::string_view bytes = text.bytes();
  std::size_t free_from = 0;  // where the last match ended
  for (std::size_t at = 0; (at = bytes.find_first_of(first_bytes_, at)) != bytes.npos;) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->content.size();
    at = end;
    if (token->single_word && inside_word(bytes, begin, end)) continue;
    if (token->lstrip) begin = strip_left(bytes, begin, free_from);
    if (token->rstrip) end = strip_right(bytes, end);
    matches.push_back({token->id, begin, end});
    free_from = at = end;
  }
  return matches;
}

}  // namespace replayssm
