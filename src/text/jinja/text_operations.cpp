#include "text/jinja/text_operations.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

std::size_t next_character(std::string_view text, std::size_t at) {
  return at + character_bytes(text[at]);
}

std::size_t previous_character(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (is_continuation(text[at]));
  return at;
}

// Where each character begins, and the end.
std::vector<std::size_t> starts_of(std::string_view text) {
  std::vector<std::size_t> starts;
  starts.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size(); at = next_character(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

OriginText mapped(const OriginText& text, char32_t (*map)(char32_t, bool first)) {
  OriginText result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_character(text.bytes(), at);
    std::string character;
    append_utf8(character, map(code_point_at(text.bytes(), at), at == 0));
    result.append(character, text.trusted(at, end));
    at = end;
  }
  return result;
}

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::vector<OriginText> split_at_white_space(const OriginText& text, std::int64_t most) {
  std::vector<OriginText> pieces;
  const std::string_view bytes = text.bytes();
  const auto space_at = [&](std::size_t at) { return is_python_space(code_point_at(bytes, at)); };
  std::size_t at = 0;
  while (true) {
    while (at < bytes.size() && space_at(at)) at = next_character(bytes, at);
    if (at == bytes.size()) return pieces;
    if (most >= 0 && static_cast<std::int64_t>(pieces.size()) == most) {
      pieces.push_back(text.slice(at, bytes.size()));
      return pieces;
    }
    const std::size_t begin = at;
    while (at < bytes.size() && !space_at(at)) at = next_character(bytes, at);
    pieces.push_back(text.slice(begin, at));
  }
}

std::vector<OriginText> split_at_white_space_from_right(const OriginText& text, std::int64_t most) {
  std::vector<OriginText> pieces;
  const std::string_view bytes = text.bytes();
  const auto space_before = [&](std::size_t end) {
    return is_python_space(code_point_at(bytes, previous_character(bytes, end)));
  };
  std::size_t end = bytes.size();
  while (true) {
    while (end > 0 && space_before(end)) end = previous_character(bytes, end);
    if (end == 0) break;
    if (most >= 0 && static_cast<std::int64_t>(pieces.size()) == most) {
      pieces.push_back(text.slice(0, end));
      break;
    }
    const std::size_t last = end;
    while (end > 0 && !space_before(end)) end = previous_character(bytes, end);
    pieces.push_back(text.slice(end, last));
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

std::int64_t character_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

std::vector<OriginText> characters_of(const OriginText& text) {
  std::vector<OriginText> characters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_character(text.bytes(), at);
    characters.push_back(text.slice(at, end));
    at = end;
  }
  return characters;
}

std::vector<std::size_t> slice_positions(std::size_t size, std::optional<std::int64_t> start,
                                         std::optional<std::int64_t> stop, std::int64_t step) {
  const auto count = static_cast<std::int64_t>(size);
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? count : count - 1;
  const auto bounded = [&](std::int64_t position) {
    if (position < 0) position = position < -count ? -1 : position + count;
    return std::clamp(position, lowest, highest);
  };
  const std::int64_t first = start ? bounded(*start) : step > 0 ? lowest : highest;
  const std::int64_t last = stop ? bounded(*stop) : step > 0 ? highest : lowest;
  std::vector<std::size_t> positions;
  // Unsigned distances: a step may be as large as an integer can be.
  for (std::int64_t at = first; step > 0 ? at < last : at > last;) {
    positions.push_back(static_cast<std::size_t>(at));
    const std::uint64_t left =
        step > 0 ? static_cast<std::uint64_t>(last - at) : static_cast<std::uint64_t>(at - last);
    const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step)
                                          : std::uint64_t{0} - static_cast<std::uint64_t>(step);
    if (stride >= left) break;
    at += step;
  }
  return positions;
}

OriginText slice(const OriginText& text, std::optional<std::int64_t> start,
                 std::optional<std::int64_t> stop, std::int64_t step) {
  const std::vector<std::size_t> starts = starts_of(text.bytes());
  const auto positions = slice_positions(starts.size() - 1, start, stop, step);
  if (positions.empty()) return {};
  if (step == 1) return text.slice(starts[positions.front()], starts[positions.back() + 1]);
  OriginText result;
  for (const std::size_t position : positions) {
    result.append(text, starts[position], starts[position + 1]);
  }
  return result;
}

OriginText strip(const OriginText& text, Side side, std::optional<std::string_view> characters) {
  const std::string_view bytes = text.bytes();
  const auto strips = [&](std::size_t at) {
    if (!characters) return is_python_space(code_point_at(bytes, at));
    return characters->find(bytes.substr(at, character_bytes(bytes[at]))) != bytes.npos;
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if (side != Side::right) {
    while (begin < end && strips(begin)) begin = next_character(bytes, begin);
  }
  if (side != Side::left) {
    while (end > begin && strips(previous_character(bytes, end))) {
      end = previous_character(bytes, end);
    }
  }
  return text.slice(begin, end);
}

std::vector<OriginText> split(const OriginText& text, std::optional<std::string_view> separator,
                              std::int64_t most) {
  if (!separator) return split_at_white_space(text, most);
  std::vector<OriginText> pieces;
  std::size_t begin = 0;
  while (most < 0 || static_cast<std::int64_t>(pieces.size()) < most) {
    const std::size_t found = text.bytes().find(*separator, begin);
    if (found == std::string::npos) break;
    pieces.push_back(text.slice(begin, found));
    begin = found + separator->size();
  }
  pieces.push_back(text.slice(begin, text.size()));
  return pieces;
}

std::vector<OriginText> split_from_right(const OriginText& text,
                                         std::optional<std::string_view> separator,
                                         std::int64_t most) {
  if (!separator) return split_at_white_space_from_right(text, most);
  std::vector<OriginText> pieces;
  std::size_t end = text.size();
  while (most < 0 || static_cast<std::int64_t>(pieces.size()) < most) {
    if (end < separator->size()) break;
    const std::size_t found = text.bytes().rfind(*separator, end - separator->size());
    if (found == std::string::npos) break;
    pieces.push_back(text.slice(found + separator->size(), end));
    end = found;
  }
  pieces.push_back(text.slice(0, end));
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<OriginText> split_lines(const OriginText& text, bool keep_ends) {
  std::vector<OriginText> lines;
  const std::string_view bytes = text.bytes();
  for (std::size_t begin = 0; begin < bytes.size();) {
    std::size_t end = begin;
    while (end < bytes.size() && !is_line_end(code_point_at(bytes, end))) {
      end = next_character(bytes, end);
    }
    std::size_t next = end;
    if (end < bytes.size()) {
      next = bytes.substr(end).starts_with("\r\n") ? end + 2 : next_character(bytes, end);
    }
    lines.push_back(text.slice(begin, keep_ends ? next : end));
    begin = next;
  }
  return lines;
}

OriginText replace(const OriginText& text, std::string_view from, const OriginText& to,
                   std::int64_t most) {
  const std::string_view bytes = text.bytes();
  OriginText result;
  std::size_t begin = 0;
  for (std::size_t at = 0; most != 0 && (at = bytes.find(from, at)) != bytes.npos; --most) {
    result.append(text, begin, at);
    result.append(to);
    begin = at + from.size();
    if (from.empty()) {
      if (at == bytes.size()) break;
      begin = at;
      at = next_character(bytes, at);
    } else {
      at = begin;
    }
  }
  result.append(text, begin, text.size());
  return result;
}

OriginText upper(const OriginText& text) {
  const auto map = [](char32_t c, bool) { return upper_case(c); };
  const std::string_view sharp_s = "\u00df";
  if (text.bytes().find(sharp_s) == std::string::npos) return mapped(text, map);
  OriginText result;
  for (const OriginText& character : characters_of(text)) {
    if (character.bytes() == sharp_s) {
      result.append("SS", character.trusted(0));
    } else {
      result.append(mapped(character, map));
    }
  }
  return result;
}

OriginText lower(const OriginText& text) {
  return mapped(text, [](char32_t c, bool) { return lower_case(c); });
}

OriginText capitalize(const OriginText& text) {
  return mapped(text, [](char32_t c, bool first) { return first ? title_case(c) : lower_case(c); });
}

OriginText title(const OriginText& text) {
  OriginText result;
  bool inside_word = false;
  for (const OriginText& character : characters_of(text)) {
    const char32_t c = code_point_at(character.bytes(), 0);
    std::string changed;
    append_utf8(changed, inside_word ? lower_case(c) : title_case(c));
    result.append(changed, character.trusted(0));
    inside_word = upper_case(c) != c || lower_case(c) != c;
  }
  return result;
}

OriginText quoted(const OriginText& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  OriginText result;
  result.append(std::string_view(&quote, 1), false);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_character(text.bytes(), at);
    const char32_t c = code_point_at(text.bytes(), at);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      result.append("\\", false);
      result.append(text, at, end);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", false);
    } else if (!is_printable(c)) {
      const auto value = static_cast<std::uint32_t>(c);
      result.append(c < 0x100     ? fmt::format("\\x{:02x}", value)
                    : c < 0x10000 ? fmt::format("\\u{:04x}", value)
                                  : fmt::format("\\U{:08x}", value),
                    false);
    } else {
      result.append(text, at, end);
    }
    at = end;
  }
  result.append(std::string_view(&quote, 1), false);
  return result;
}

}  // namespace replayssm::jinja
