// Speculation through the command line, with the embedded model.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "program.h"
#include "source_dir.h"

namespace replayssm {
namespace {

using nlohmann::json;

json generate(std::vector<std::string> flags) {
  std::vector<std::string> arguments{
      "generate",      "--chat", "--prompt", "Count from 38 to 61.", "--max-tokens", "120",
      "--temperature", "0",      "--json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const auto result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(CliSpeculation, EveryAlgorithmGivesTheTextOfPlainDecoding) {
  for (const bool deterministic : {false, true}) {
    std::vector<std::string> base;
    if (deterministic) base.emplace_back("--deterministic");
    const json plain = generate(base);
    EXPECT_FALSE(plain.contains("speculation"));
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{"NGRAM"},
          {"EAGLE"},
          {"NEXTN", "--speculative-num-steps", "7"},
          {"MTP", "--speculative-num-draft-tokens", "2"},
          {"EAGLE", "--speculative-ragged-verify", "static"},
          {"NGRAM", "--speculative-ragged-verify", "cap-accept"}}) {
      auto with = base;
      with.emplace_back("--speculative-algorithm");
      with.insert(with.end(), flags.begin(), flags.end());
      const json found = generate(with);
      // Otherwise products of several rows may round differently.
      if (deterministic) {
        EXPECT_EQ(found["tokens"], plain["tokens"]) << flags.front();
      }
      EXPECT_GT(found["speculation"]["windows"], 0) << flags.front();
      EXPECT_LT(found["steps"], plain["steps"]) << flags.front();
    }
  }
}

// The drafters that come with the embedded model, where they do.
TEST(CliSpeculation, ShippedDraftersGiveTheTextOfPlainDecoding) {
  for (const auto& [algorithm, directory] :
       {std::pair{"DFLASH", "tiny-dflash2"}, std::pair{"DSPARK", "tiny-dspark"}}) {
    const auto drafter = source_dir() / "models" / directory;
    if (!std::filesystem::exists(drafter)) {
      const auto result = run_program({"generate", "--speculative-algorithm", algorithm});
      EXPECT_NE(result.exit_code, 0);
      EXPECT_EQ(result.err, fmt::format("replayssm: --speculative-algorithm: {} has no drafter in "
                                        "{}; name one with --speculative-draft-model-path\n",
                                        algorithm, drafter.string()));
      continue;
    }
    const json plain = generate({"--deterministic"});
    const json found = generate({"--deterministic", "--speculative-algorithm", algorithm,
                                 "--speculative-step-rates", "none"});
    EXPECT_EQ(found["tokens"], plain["tokens"]) << algorithm;
    EXPECT_LT(found["steps"], plain["steps"]) << algorithm;
  }
}

TEST(CliSpeculation, WindowsThatAreTooLongAreCutWithOneLine) {
  const auto result =
      run_program({"generate", "--prompt", "a b a b a", "--max-tokens", "4",
                   "--speculative-algorithm", "NGRAM", "--linear-replayssm-cache-len", "8"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err,
            "replayssm: --speculative-num-draft-tokens: windows of 12 tokens are cut to 8, those "
            "of --linear-replayssm-cache-len 8\n");
}

TEST(CliSpeculation, EvalGivesTheSameScoresAndTheAcceptedLengths) {
  const auto eval = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"eval", "--json", "--limit", "4", "--replay", "on"});
    const auto result = run_program(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  };
  const json plain = eval({"--deterministic"});
  const json drafted = eval({"--deterministic", "--speculative-algorithm", "EAGLE"});
  EXPECT_EQ(drafted["tasks"], plain["tasks"]);
  EXPECT_EQ(drafted["replay"]["on"]["accepted_length"].size(), plain["tasks"].size());
}

}  // namespace
}  // namespace replayssm
