#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <vector>

#include "text/utf8.h"

namespace replayssm {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

#include "text/unicode_tables.inc"

template <std::size_t n>
bool contains(const CodePointRange (&ranges)[n], char32_t code_point) {
  const auto* range = std::upper_bound(
      std::begin(ranges), std::end(ranges), code_point,
      [](char32_t value, const CodePointRange& candidate) { return value < candidate.first; });
  return range != std::begin(ranges) && code_point <= std::prev(range)->last;
}

// Canonical decomposition, marks not yet in order. Nothing if the text is not UTF-8.
std::optional<std::vector<utf8proc_int32_t>> decomposed(std::string_view text) {
  std::vector<utf8proc_int32_t> all;
  while (!text.empty()) {
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()), &code_point);
    std::array<utf8proc_int32_t, 32> parts{};  // a character has four at most
    int boundary = 0;
    const utf8proc_ssize_t count =
        bytes <= 0
            ? -1
            : utf8proc_decompose_char(
                  code_point, parts.data(), parts.size(),
                  static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) return std::nullopt;
    all.insert(all.end(), parts.begin(), parts.begin() + count);
    text.remove_prefix(static_cast<std::size_t>(bytes));
  }
  return all;
}

// Canonical ordering of every run of marks. utf8proc_map() exchanges neighbours instead, which
// takes quadratic time: minutes for the marks that a request may have.
void sort_marks(std::vector<utf8proc_int32_t>& text) {
  const auto rank = [](utf8proc_int32_t code_point) {
    return utf8proc_get_property(code_point)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t code_point) { return rank(code_point) != 0; };
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), is_mark);
    const auto end = std::find_if_not(begin, text.end(), is_mark);
    std::stable_sort(begin, end, [&](auto a, auto b) { return rank(a) < rank(b); });
    begin = end;
  }
}

// In normal form C. Nothing if the text is not UTF-8.
std::optional<std::vector<utf8proc_int32_t>> composed(std::string_view text) {
  auto code_points = decomposed(text);
  if (!code_points) return std::nullopt;
  sort_marks(*code_points);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      code_points->data(), static_cast<utf8proc_ssize_t>(code_points->size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (count < 0) return std::nullopt;
  code_points->resize(static_cast<std::size_t>(count));
  return code_points;
}

CharacterClass class_by_category(char32_t code_point) {
  if (code_point == '\r' || code_point == '\n') return CharacterClass::newline;
  if (is_white_space(code_point)) return CharacterClass::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return CharacterClass::mark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::number;
    case UTF8PROC_CATEGORY_CN:
      if (contains(kNewerLetters, code_point)) return CharacterClass::letter;
      if (contains(kNewerMarks, code_point)) return CharacterClass::mark;
      if (contains(kNewerNumbers, code_point)) return CharacterClass::number;
      return CharacterClass::other;
    default:
      return CharacterClass::other;
  }
}

const std::array<CharacterClass, 0x80>& ascii_classes() {
  static const auto classes = [] {
    std::array<CharacterClass, 0x80> table;
    for (char32_t c = 0; c < table.size(); ++c) table[c] = class_by_category(c);
    return table;
  }();
  return classes;
}

}  // namespace

CharacterClass class_of(char32_t code_point) {
  static const std::array<CharacterClass, 0x80>& ascii = ascii_classes();
  return code_point < ascii.size() ? ascii[code_point] : class_by_category(code_point);
}

bool is_word_character(char32_t code_point) {
  switch (class_of(code_point)) {
    case CharacterClass::letter:
    case CharacterClass::mark:
      return true;
    case CharacterClass::number:
      return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) != UTF8PROC_CATEGORY_NO;
    case CharacterClass::other:
      return code_point == 0x200C || code_point == 0x200D ||
             utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) == UTF8PROC_CATEGORY_PC;
    default:
      return false;
  }
}

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= '\t' && code_point <= '\r');
  return code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

bool is_python_space(char32_t code_point) {
  return is_white_space(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

bool is_printable(char32_t code_point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code_point == ' ';
    default:
      return true;
  }
}

bool is_decimal_digit(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) == UTF8PROC_CATEGORY_ND;
}

char32_t upper_case(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point)));
}

char32_t lower_case(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

char32_t title_case(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code_point)));
}

std::size_t nfc_chunk(std::string_view text, bool& changes) {
  // A character below U+0300 composes with nothing before it, and one that the normalizer does not
  // know composes and moves with nothing at all. So a chunk is either a run of the former, left as
  // it is; or one that is not known; or at most one of the former with what may compose with it.
  changes = false;
  std::size_t size = 0;
  std::size_t last = 0;  // where the last character of the run begins
  while (size < text.size() && static_cast<unsigned char>(text[size]) < 0xCC) {  // below U+0300
    last = size;
    size += character_bytes(text[size]);
  }
  if (size == text.size()) return size;
  if (last > 0) return last;
  while (size < text.size() && static_cast<unsigned char>(text[size]) >= 0xCC) {
    const std::size_t bytes = character_bytes(text[size]);
    if (contains(kNeverReordered, code_point_at(text, size))) return size == 0 ? bytes : size;
    size += bytes;
    changes = true;
  }
  return size;
}

void append_nfc(std::string_view text, std::string& out) {
  while (!text.empty()) {
    bool changes = false;
    const std::size_t size = nfc_chunk(text, changes);
    if (changes) {
      if (const auto code_points = composed(text.substr(0, size))) {
        for (const auto code_point : *code_points) {
          append_utf8(out, static_cast<char32_t>(code_point));
        }
      } else {
        out += text.substr(0, size);  // not UTF-8
      }
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
}

}  // namespace replayssm
