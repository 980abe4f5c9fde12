#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

class BothPatterns : public testing::TestWithParam<const char*> {
 protected:
  const Tokenizer tokenizer_ = load_test_tokenizer(GetParam());
  const ordered_json goldens_ = read_golden_file(std::string(GetParam()) + "/goldens.json");
};

INSTANTIATE_TEST_SUITE_P(Tokenizer, BothPatterns, testing::Values("qwen3", "qwen35"));

TEST_P(BothPatterns, EncodesOrdinaryTextAsTokenizersDoesWithoutAddedTokens) {
  for (const auto& entry : goldens_["encode"]) {
    EXPECT_EQ(tokenizer_.encode(entry[0].get<std::string>()), entry[1].get<Ids>()) << entry[0];
  }
}

TEST_P(BothPatterns, EncodesTrustedTextAsTokenizersDoes) {
  // Texts that hold no added token encode as ordinary text; the others are listed apart.
  std::map<std::string, Ids> expected;
  for (const auto& entry : goldens_["encode"]) expected[entry[0]] = entry[1].get<Ids>();
  ASSERT_GT(goldens_["encode_with_added_tokens"].size(), 4u);
  for (const auto& entry : goldens_["encode_with_added_tokens"]) {
    expected[entry[0]] = entry[1].get<Ids>();
  }
  for (const auto& [text, ids] : expected) {
    EXPECT_EQ(tokenizer_.encode_with_added_tokens(text), ids) << text;
    EXPECT_EQ(tokenizer_.encode(RenderedPrompt{{text, true}}), ids) << text;
  }
}

TEST_P(BothPatterns, EncodesTheSameTextWhereverAPromptIsCutIntoParts) {
  for (const auto& entry : goldens_["encode"]) {
    const auto text = entry[0].get<std::string>();
    const auto ids = entry[1].get<Ids>();
    EXPECT_EQ(tokenizer_.encode(RenderedPrompt{{text, false}}), ids);
    for (const std::size_t cut : {text.size() / 3, text.size() / 2}) {
      EXPECT_EQ(tokenizer_.encode(
                    RenderedPrompt{{text.substr(0, cut), false}, {text.substr(cut), false}}),
                ids)
          << entry[0];
    }
  }
}

TEST_P(BothPatterns, RepairsInputThatIsNotUtf8AsPythonDecodesIt) {
  for (const auto& entry : goldens_["encode_bytes"]) {
    const std::string bytes = from_hex(entry[0].get<std::string>());
    EXPECT_EQ(tokenizer_.encode(bytes), entry[1].get<Ids>()) << entry[0];
    EXPECT_EQ(tokenizer_.encode(RenderedPrompt{{bytes, false}}), entry[1].get<Ids>()) << entry[0];
  }
}

TEST_P(BothPatterns, DecodesAnyIdsAsTokenizersDoes) {
  for (const auto& entry : goldens_["decode"]) {
    const auto ids = entry[0].get<Ids>();
    EXPECT_EQ(tokenizer_.decode(ids), entry[1].get<std::string>()) << entry[0];
    EXPECT_EQ(tokenizer_.decode(ids, /*skip_special=*/true), entry[2].get<std::string>());
  }
}

TEST_P(BothPatterns, MergesAddedTokensOfBothFiles) {
  const auto think = tokenizer_.id_of("<think>");  // in tokenizer_config.json only
  ASSERT_TRUE(think);
  EXPECT_EQ(tokenizer_.token_bytes(*think), "<think>");
  EXPECT_TRUE(tokenizer_.is_added(*think));
  EXPECT_FALSE(tokenizer_.is_special(*think));
  EXPECT_EQ(tokenizer_.encode_with_added_tokens("<think>"), Ids{*think});
  EXPECT_EQ(tokenizer_.decode(Ids{*think}, /*skip_special=*/true), "<think>");
  EXPECT_EQ(tokenizer_.size(), *tokenizer_.id_of("</think>") + 1);
}

TEST_P(BothPatterns, KnowsTheRolesOfSpecialTokens) {
  EXPECT_EQ(tokenizer_.eos(), tokenizer_.id_of("<|im_end|>"));
  EXPECT_EQ(tokenizer_.pad(), tokenizer_.id_of("<|endoftext|>"));
  EXPECT_EQ(tokenizer_.bos(), std::nullopt);
  EXPECT_TRUE(tokenizer_.is_special(*tokenizer_.eos()));
  EXPECT_EQ(tokenizer_.decode(Ids{*tokenizer_.eos()}, /*skip_special=*/true), "");
}

TEST_P(BothPatterns, IdsOutsideTheVocabularyHaveNoText) {
  for (const TokenId id : {-1, tokenizer_.size(), 1 << 30}) {
    EXPECT_EQ(tokenizer_.token_bytes(id), "");
    EXPECT_FALSE(tokenizer_.is_special(id));
    EXPECT_FALSE(tokenizer_.is_added(id));
    EXPECT_EQ(tokenizer_.decode(Ids{id}), "");
  }
  EXPECT_EQ(tokenizer_.id_of("<nothing>"), std::nullopt);
  EXPECT_EQ(tokenizer_.id_of("a"), std::nullopt) << "a base token is no added token";
}

TEST_P(BothPatterns, EncodesAMegabyteWithoutSpacesInWellUnderASecond) {
  const std::string one_letter(1 << 20, 'a');
  std::string mixed;
  while (mixed.size() < (1 << 20)) {
    for (const auto& entry : goldens_["encode"]) mixed += entry[0].get<std::string>();
  }
  const std::string spaces(1 << 20, ' ');
  for (const std::string& text : {one_letter, mixed, spaces}) {
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = tokenizer_.encode(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << text.size() << " bytes, " << ids.size() << " tokens: " << seconds.count() * 1e3
              << " ms\n";
    // A quadratic merge takes minutes; the bound leaves room for sanitizers and busy machines.
    EXPECT_LT(seconds.count(), 20.0);
  }
}

TEST(AddedTokenFlags, AreHonouredAsTokenizersDoes) {
  const Tokenizer tokenizer = load_test_tokenizer("flags");
  const auto goldens = read_golden_file("flags/goldens.json");
  ASSERT_GT(goldens["encode_with_added_tokens"].size(), 100u);
  for (const auto& entry : goldens["encode_with_added_tokens"]) {
    EXPECT_EQ(tokenizer.encode_with_added_tokens(entry[0].get<std::string>()), entry[1].get<Ids>())
        << entry[0];
  }
}

// Loads qwen35 with a change to its tokenizer.json; the error, or "" where it loads.
class RefusedTokenizer : public testing::Test {
 protected:
  RefusedTokenizer() {
    std::string name = testing::TempDir() + "/replayssm_tokenizer_XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~RefusedTokenizer() override { std::filesystem::remove_all(directory_); }

  std::string error_with(const std::string& pointer, const ordered_json& value) {
    ordered_json changed = stored_;
    changed[ordered_json::json_pointer(pointer)] = value;
    return error_of(changed.dump());
  }

  std::string error_of(const std::string& file) {
    std::ofstream(directory_ / "tokenizer.json", std::ios::binary) << file;
    const Result<Tokenizer> loaded = Tokenizer::load(directory_);
    return loaded ? "" : loaded.error().message;
  }

  void write_config(const ordered_json& config) {
    std::ofstream(directory_ / "tokenizer_config.json", std::ios::binary) << config.dump();
  }

  std::filesystem::path directory_;
  ordered_json stored_ = read_golden_file("qwen35/tokenizer.json");
};

TEST_F(RefusedTokenizer, IsNamedWithTheKindThatIsNotImplemented) {
  const auto expect_names = [](const std::string& error, std::vector<std::string> words) {
    for (const std::string& word : words) {
      EXPECT_NE(error.find(word), std::string::npos) << "'" << error << "' lacks " << word;
    }
  };
  EXPECT_EQ(error_of(stored_.dump()), "");
  expect_names(error_with("/normalizer", {{"type", "NFKC"}}), {"normalizer", "NFKC", "NFC"});
  expect_names(error_with("/pre_tokenizer", {{"type", "Whitespace"}}),
               {"pre_tokenizer", "Whitespace"});
  expect_names(error_with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+"),
               {"pattern", "\\w+"});
  expect_names(error_with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"),
               {"behavior", "Removed"});
  expect_names(error_with("/pre_tokenizer/pretokenizers/1/use_regex", true), {"use_regex"});
  expect_names(error_with("/pre_tokenizer/pretokenizers/1/add_prefix_space", true),
               {"add_prefix_space"});
  expect_names(error_with("/model/type", "Unigram"), {"model", "Unigram", "BPE"});
  expect_names(error_with("/model/dropout", 0.1), {"dropout"});
  expect_names(error_with("/model/byte_fallback", true), {"byte_fallback"});
  expect_names(error_with("/model/ignore_merges", true), {"ignore_merges"});
  expect_names(error_with("/model/end_of_word_suffix", "</w>"), {"end_of_word_suffix"});
  expect_names(error_with("/decoder", {{"type", "WordPiece"}}), {"decoder", "WordPiece"});
  expect_names(error_with("/decoder", nullptr), {"decoder", "none"});
  expect_names(error_with("/post_processor", {{"type", "TemplateProcessing"}}),
               {"post_processor", "TemplateProcessing"});
}

TEST_F(RefusedTokenizer, IsNamedWithTheFieldThatIsDamaged) {
  const std::string whole = stored_.dump();
  EXPECT_NE(error_of(whole.substr(0, whole.size() / 2)), "");
  EXPECT_NE(error_of("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_with("/model/vocab/a", -1).find("model.vocab[\"a\"]"), std::string::npos);
  EXPECT_NE(error_with("/model/vocab/a", 1 << 30).find("model.vocab[\"a\"]"), std::string::npos);
  EXPECT_NE(error_with("/model/vocab/a", 7).find("has two"), std::string::npos);
  EXPECT_NE(error_with("/model/merges/3", {"a", "nothing"}).find("model.merges[3]"),
            std::string::npos);
  EXPECT_NE(error_with("/model/merges/3", "ab").find("model.merges[3]"), std::string::npos);
  EXPECT_NE(error_with("/added_tokens/0/id", "x").find("added_tokens[0].id"), std::string::npos);

  ordered_json without_byte = stored_;
  without_byte["model"]["vocab"].erase("a");
  EXPECT_NE(error_of(without_byte.dump()).find("0x61"), std::string::npos);
}

TEST_F(RefusedTokenizer, IsNamedWithWhatTheTwoFilesDisagreeOn) {
  const TokenId eos = *load_test_tokenizer("qwen35").eos();
  write_config({{"added_tokens_decoder", {{std::to_string(eos), {{"content", "<other>"}}}}}});
  const std::string error = error_of(stored_.dump());
  EXPECT_NE(error.find("<other>"), std::string::npos) << error;
  EXPECT_NE(error.find("<|im_end|>"), std::string::npos) << error;

  write_config({{"eos_token", "<unknown>"}});
  EXPECT_NE(error_of(stored_.dump()).find("eos_token: <unknown>"), std::string::npos);
  write_config({{"added_tokens_decoder", {{"x", {{"content", "y"}}}}}});
  EXPECT_NE(error_of(stored_.dump()).find("added_tokens_decoder[\"x\"]"), std::string::npos);
}

TEST(Tokenizer, NamesTheFileThatIsMissing) {
  const Result<Tokenizer> loaded = Tokenizer::load(text_data("no_such_directory"));
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace replayssm
