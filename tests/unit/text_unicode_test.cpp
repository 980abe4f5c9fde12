#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "text/unicode.h"
#include "text/utf8.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

TEST(Unicode, EveryCodePointHasTheClassThatTokenizersGivesIt) {
  const std::map<char, CharacterClass> class_of_letter = {{'L', CharacterClass::letter},
                                                          {'M', CharacterClass::mark},
                                                          {'N', CharacterClass::number},
                                                          {'S', CharacterClass::space}};
  std::vector<CharacterClass> expected(0x110000, CharacterClass::other);
  std::ifstream file(text_data("unicode_classes.txt"));
  ASSERT_TRUE(file);
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    std::istringstream words(line);
    char letter = 0;
    std::size_t first = 0;
    std::size_t last = 0;
    words >> letter >> std::hex >> first >> last;
    for (std::size_t c = first; c <= last; ++c) expected[c] = class_of_letter.at(letter);
  }
  expected['\r'] = expected['\n'] = CharacterClass::newline;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    ASSERT_EQ(class_of(c), expected[c]) << std::hex << static_cast<std::uint32_t>(c);
  }
}

std::string nfc(std::string_view text) {
  std::string composed;
  append_nfc(text, composed);
  return composed;
}

TEST(Unicode, ComposesAcrossAnyStretchOfText) {
  EXPECT_EQ(nfc("plain ASCII"), "plain ASCII");
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("xyze\u0301e\u0301z"), "xyz\u00e9\u00e9z");
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(nfc("a\u0301\u0327"), nfc("a\u0327\u0301"));
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c") << "a composition exclusion stays decomposed";
}

// Canonical ordering is stable within a class of marks: U+0316 is of a lower one than U+0301. A
// million marks out of order take a moment, where exchanging neighbours takes a day.
TEST(Unicode, ALongRunOfMarksIsPutInOrder) {
  EXPECT_EQ(nfc("a\u0301\u0316"), "\u00e1\u0316");
  EXPECT_EQ(nfc("x\u0301\u0316\u0300\u0317y"), "x\u0316\u0317\u0301\u0300y");
  constexpr int kMarks = 500'000;
  std::string mixed = "x";
  std::string ordered = "x";
  for (int i = 0; i < kMarks; ++i) mixed += "\u0301\u0316";
  for (int i = 0; i < kMarks; ++i) ordered += "\u0316";
  for (int i = 0; i < kMarks; ++i) ordered += "\u0301";
  EXPECT_TRUE(nfc(mixed) == ordered);
}

TEST(Unicode, ComposingIsIdempotent) {
  const auto goldens = read_golden_file("qwen35/goldens.json");
  for (const auto& entry : goldens["encode"]) {
    const std::string once = nfc(entry[0].get<std::string>());
    EXPECT_EQ(nfc(once), once);
  }
}

TEST(Utf8, EncodesAndDecodesEveryScalarValue) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(code_point_at(text, 0), c);
    ASSERT_EQ(character_bytes(text[0]), text.size());
    ASSERT_EQ(first_character(text).kind, Utf8Character::Kind::valid);
    ASSERT_EQ(first_character(text).bytes, text.size());
  }
}

TEST(Utf8, EveryPairOfBytesIsValidExactlyWhenItDecodes) {
  // is_utf8 is the library's; first_character is ours: they must agree.
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      for (const char* tail : {"", "\x80", "\x80\x80", "\xBF\xBF", "a"}) {
        const std::string text = std::string{static_cast<char>(a), static_cast<char>(b)} + tail;
        bool valid = true;
        for (std::string_view rest = text; !rest.empty();) {
          const Utf8Character first = first_character(rest);
          valid = valid && first.kind == Utf8Character::Kind::valid;
          rest.remove_prefix(first.bytes);
        }
        ASSERT_EQ(is_utf8(text), valid) << a << ' ' << b;
        ASSERT_TRUE(is_utf8(repaired_utf8(text)));
      }
    }
  }
}

}  // namespace
}  // namespace replayssm
