// exo-explore/exo#1644: a checkpoint has two ids that end a generation, config.json names one of
// them (often the wrong one for chat), and the other was generated as text. Here every file's ids
// count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/config.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Its tokenizer has <|endoftext|> 498 and <|im_end|> 499; config.json names the first and
// tokenizer_config.json the second.
constexpr const char* kCheckpoint = "ratio3_bfloat16_flat_untied";

std::vector<TokenId> eos_of(const TestCheckpoint& checkpoint) {
  const auto config = load_config(checkpoint.path());
  if (!config) throw std::runtime_error(config.error().message);
  return config->eos;
}

TEST(K02, ids_of_config_and_tokenizer_config_are_united) {
  const TestCheckpoint checkpoint(kCheckpoint);
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(498, 499));
  const auto config = load_config(checkpoint.path());
  EXPECT_TRUE(config->is_eos(498));
  EXPECT_TRUE(config->is_eos(499));
  EXPECT_FALSE(config->is_eos(497));
}

TEST(K02, ids_of_generation_config_are_added_once) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.write("generation_config.json", R"({"eos_token_id": [499, 498, 7]})");
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(7, 498, 499));
  checkpoint.write("generation_config.json", R"({"eos_token_id": 9})");
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(9, 498, 499));
}

TEST(K02, each_file_alone_is_enough) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_config([](auto& c) { c["eos_token_id"] = nullptr; });
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(499));
  checkpoint.remove("tokenizer_config.json");
  EXPECT_THAT(eos_of(checkpoint), IsEmpty());
  checkpoint.write("generation_config.json", R"({"eos_token_id": 5})");
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(5));
  checkpoint.remove("generation_config.json");
  checkpoint.edit_config([](auto& c) { c["eos_token_id"] = {3, 4}; });
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(3, 4));
}

TEST(K02, ids_of_both_levels_of_a_nested_configuration_count) {
  const TestCheckpoint checkpoint("ratio2_float16_nested_untied");
  checkpoint.edit_config([](auto& c) { c["eos_token_id"] = 5; });
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(5, 510));
}

TEST(K02, the_eos_token_may_be_an_object) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.write("tokenizer_config.json",
                   R"({"eos_token": {"content": "<|im_end|>", "lstrip": false}})");
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(498, 499));
  checkpoint.write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_THAT(eos_of(checkpoint), ElementsAre(498));
}

}  // namespace
}  // namespace replayssm
