// The languages of patterns and ranges against independent definitions of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>

#include "grammar_vocabulary.h"

namespace replayssm::grammar {
namespace {

using Json = nlohmann::ordered_json;

bool accepts(const std::shared_ptr<ConstrainedTokens>& tokens, std::string_view text) {
  GrammarState state(tokens);
  return state.accept(text) && state.finished();
}

TEST(GrammarLanguage, PatternsMatchWhatStdRegexMatches) {
  const std::vector<std::string> patterns = {"^a*b$",
                                             "a",
                                             "^a|b$",
                                             "^(a|bc)+$",
                                             "^[a-c]{2,3}$",
                                             "^[^ab]?c+$",
                                             "^(ab?){2}c*$",
                                             "b{3}",
                                             "^$",
                                             "",
                                             "^\\w+\\d$",
                                             "^\\S\\s\\S$",
                                             "^a.c$",
                                             "^\\D\\W$",
                                             "^(a*)*b$",
                                             "^(a*){2,3}b$",
                                             "^(a?b?){2}$",
                                             "^((a|){2,}c?){1,2}$",
                                             "^((a|b{0}){0,2}b?){2,3}$",
                                             "^(a*b*){3,}c$",
                                             "^(){3}a$",
                                             "^(a{0}){2}b$",
                                             "^(a?b?c?)+1$",
                                             "^(a?(b?|c)a*){2}$",
                                             "^(a|b)*?c{1,}",
                                             "^(?:a{2}){1,2}",
                                             "^((a|b){2}c){2}$",
                                             "^[\\w-]+$",
                                             "^\\x61\\u0062$",
                                             "^(|a)b$",
                                             "^[a\\]]b$",
                                             "^a+?b??$",
                                             "c$",
                                             "^c"};
  std::mt19937 random(5);
  const std::string alphabet = "abc1 -]";
  for (const std::string& pattern : patterns) {
    const std::regex reference(pattern);
    const auto tokens = testing::constrained(Json{{"pattern", pattern}}.dump());
    for (int i = 0; i < 400; ++i) {
      std::string text(random() % 8, ' ');
      const std::size_t letters = i % 2 == 0 ? 3 : alphabet.size();
      for (char& c : text) c = alphabet[random() % letters];
      ASSERT_EQ(accepts(tokens, fmt::format("\"{}\"", text)), std::regex_search(text, reference))
          << pattern << " on " << text;
    }
  }
}

TEST(GrammarLanguage, PatternsWriteTheirCharactersAsJsonMust) {
  const auto any = testing::constrained(R"({"pattern": "^.$"})");
  for (const std::string text :
       {R"("é")", R"("漢")", R"("😀")", R"("\"")", R"("\\")", R"("\t")", R"("\u0001")", R"(" ")"}) {
    EXPECT_TRUE(accepts(any, text)) << text;
  }
  for (const std::string text :
       {R"("\n")", R"("ab")", R"("")", R"("\u0061")", "\"\xE2\x80\xA8\""}) {
    EXPECT_FALSE(accepts(any, text)) << text;
  }
  const auto greek = testing::constrained(R"({"pattern": "^[α-ω]+$"})");
  EXPECT_TRUE(accepts(greek, R"("αβγω")"));
  EXPECT_FALSE(accepts(greek, R"("αΩ")"));
  const auto wide = testing::constrained(R"({"pattern": "^[^a-z\\u0800-\\uffff]$"})");
  EXPECT_TRUE(accepts(wide, "\"\xDF\xBF\""));
  EXPECT_TRUE(accepts(wide, "\"\xF0\x90\x80\x80\""));
  EXPECT_FALSE(accepts(wide, "\"\xE0\xA0\x80\""));
}

// Bounds and numbers in hundredths, so that integers decide.
TEST(GrammarLanguage, NumbersKeepTheirBounds) {
  std::mt19937 random(9);
  const auto text_of = [](long hundredths) {
    const long whole = std::labs(hundredths) / 100;
    const long rest = std::labs(hundredths) % 100;
    std::string text = fmt::format("{}{}", hundredths < 0 ? "-" : "", whole);
    if (rest != 0) text += fmt::format(".{:02}", rest);
    while (rest != 0 && text.ends_with('0')) text.pop_back();
    return text;
  };
  int valid_schemas = 0;
  for (int round = 0; round < 150; ++round) {
    const long spread = round % 3 == 0 ? 300 : 15000;
    const auto draw = [&] {
      long value = static_cast<long>(random() % (2 * spread)) - spread;
      return random() % 3 == 0 ? value / 100 * 100 : value;
    };
    const long low = draw();
    const long high = draw();
    const bool integer = random() % 2 == 0;
    const bool has_low = random() % 4 != 0;
    const bool has_high = random() % 4 != 0 || !has_low;
    const bool open_low = random() % 2 == 0;
    const bool open_high = random() % 2 == 0;
    std::string schema = integer ? R"({"type": "integer")" : R"({"type": "number")";
    if (has_low)
      schema += (open_low ? R"(, "exclusiveMinimum": )" : R"(, "minimum": )") + text_of(low);
    if (has_high) {
      schema += (open_high ? R"(, "exclusiveMaximum": )" : R"(, "maximum": )") + text_of(high);
    }
    schema += "}";
    const auto within = [&](long value) {
      if (integer && value % 100 != 0) return false;
      if (has_low && (value < low || (open_low && value == low))) return false;
      return !(has_high && (value > high || (open_high && value == high)));
    };
    const auto grammar = Grammar::from_schema(Json::parse(schema));
    if (!grammar.ok()) {
      for (long value = -spread - 200; value <= spread + 200; value += integer ? 100 : 1) {
        const long whole = integer ? value / 100 * 100 : value;
        ASSERT_FALSE(within(whole)) << schema << " refused, but admits " << text_of(whole);
      }
      continue;
    }
    ++valid_schemas;
    const auto tokens = testing::constrained(*grammar);
    for (int i = 0; i < 200; ++i) {
      long value = draw();
      if (i < 10 && has_low) value = low + i - 5;
      if (i >= 10 && i < 20 && has_high) value = high + i - 15;
      if (integer && i >= 20) value = value / 100 * 100;
      ASSERT_EQ(accepts(tokens, text_of(value)), within(value)) << schema << ' ' << text_of(value);
    }
    if (!integer && within(100)) {
      EXPECT_TRUE(accepts(tokens, "1.000"));
      EXPECT_FALSE(accepts(tokens, "1."));
      EXPECT_FALSE(accepts(tokens, "01"));
    }
  }
  EXPECT_GT(valid_schemas, 80);
}

// White space is ASCII or Unicode, depending on whom one asks; only what both agree on comes out.
TEST(GrammarLanguage, ClassesOfWhiteSpaceAreReadNarrowly) {
  const auto tokens = [](const std::string& pattern) {
    return testing::constrained(Json{{"pattern", pattern}}.dump());
  };
  const std::string_view no_break_space = "\"\xC2\xA0\"";
  for (const std::string pattern : {"^\\s$", "^[\\s]$", "^\\S$", "^[^\\s]$", "^[^\\S]$"}) {
    EXPECT_FALSE(accepts(tokens(pattern), no_break_space)) << pattern;
  }
  EXPECT_TRUE(accepts(tokens("^[^\\S]$"), "\" \""));
  EXPECT_TRUE(accepts(tokens("^[^\\s]$"), "\"x\""));
}

TEST(GrammarLanguage, LargeBoundsAreExact) {
  const auto tokens = testing::constrained(
      R"({"type": "integer", "minimum": -9007199254740993, "maximum": 9007199254740993})");
  EXPECT_TRUE(accepts(tokens, "9007199254740993"));
  EXPECT_FALSE(accepts(tokens, "9007199254740994"));
  EXPECT_TRUE(accepts(tokens, "-9007199254740993"));
  EXPECT_FALSE(accepts(tokens, "-9007199254740994"));
}

}  // namespace
}  // namespace replayssm::grammar
