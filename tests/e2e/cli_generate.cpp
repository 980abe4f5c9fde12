// generate and chat with the embedded model.
#include <nlohmann/json.hpp>

#include "program.h"

namespace replayssm {
namespace {

using nlohmann::json;

json generate_json(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "generate");
  arguments.push_back("--json");
  const auto result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json parsed = json::parse(result.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << result.out;
  return parsed;
}

TEST(CliGenerate, AnswersAQuestionAndStops) {
  const auto result =
      run_program({"generate", "--chat", "--prompt", "Count from 7 to 12", "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "7, 8, 9, 10, 11, 12\n");
  EXPECT_EQ(result.err, "");
}

TEST(CliGenerate, ReplayOffOnAndOtherBlocksGiveTheSameGreedyText) {
  const std::vector<std::string> common{
      "--prompt", "It was a bright morning", "--max-tokens", "24", "--temperature", "0", "--dtype",
      "float32"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), common.begin(), common.end());
    return generate_json(flags);
  };
  const json on = with({});
  EXPECT_EQ(on["completion_tokens"], 24);
  for (const char* block : {"8", "32"}) {
    EXPECT_EQ(with({"--linear-replayssm-cache-len", block})["tokens"], on["tokens"]) << block;
  }
  const json off = with({"--disable-linear-replayssm"});
  EXPECT_EQ(off["tokens"], on["tokens"]);
  EXPECT_EQ(off["folds"], 0);
  EXPECT_EQ(off["engine"]["linear_replayssm"], false);
}

TEST(CliGenerate, TheReportCountsFoldsAndStateBytesExactly) {
  const json report = generate_json(
      {"--prompt", "It was a bright morning", "--max-tokens", "60", "--temperature", "0"});
  const std::int64_t prompt = report["prompt_tokens"];
  const std::int64_t evaluated = prompt + report["completion_tokens"].get<std::int64_t>() - 1;
  ASSERT_EQ(report["finish_reason"], "length");
  EXPECT_EQ(report["tokens"].size(), 60u);
  // One block for each 16 tokens but the newest block; the state of six layers is 6 heads of 64
  // KiB.
  const std::int64_t state = 6 * 6 * 128 * 128 * 4;
  ASSERT_LE(prompt, 16) << "else the prompt folds as well";
  const std::int64_t folds = (evaluated - 1) / 16;
  EXPECT_EQ(report["folds"], folds);
  EXPECT_EQ(report["state_bytes_written"], folds * state);
  // A step reads the checkpoint once it is not the zero state; the step that folds it first, the
  // 17th token's, still starts from zero.
  EXPECT_EQ(report["state_bytes_read"], (evaluated - 17) * state);
  EXPECT_GT(report["timings"]["decode_seconds"], 0.0);
  EXPECT_EQ(report["engine"]["mamba_ssm_dtype"], "float32") << "H03: the choice is shown";
}

TEST(CliGenerate, ASeedRepeatsItsTextAndTheReportTellsTheSeed) {
  const std::vector<std::string> flags{"--prompt",      "Once", "--max-tokens",   "12",
                                       "--temperature", "1.5",  "--deterministic"};
  const json first = generate_json(flags);
  auto again = flags;
  again.insert(again.end(), {"--seed", first["seed"].dump()});
  EXPECT_EQ(generate_json(again)["tokens"], first["tokens"]);
}

TEST(CliGenerate, AnInterruptEndsCleanlyWithWhatThereIs) {
  const auto result = run_program({"generate", "--prompt", "Once", "--max-tokens", "4000",
                                   "--temperature", "2", "--threads", "1", "--json"},
                                  {"", 1500, ""});
  if (result.exit_code == 0) GTEST_SKIP() << "it was done before the interrupt";
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const json report = json::parse(result.out, nullptr, false);
  if (report.is_object()) {
    EXPECT_EQ(report["finish_reason"], "cancelled");
  }
}

TEST(CliGenerate, OutputThatCannotBeWrittenIsAFailure) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"generate", "--prompt", "Once", "--max-tokens", "3"},
        {"generate", "--prompt", "Once", "--max-tokens", "3", "--json"},
        {"plan", "--memory", "1GiB"},
        {"--help"}}) {
    ProgramOptions options;
    options.output = "/dev/full";
    const auto result = run_program(arguments, options);
    EXPECT_EQ(result.exit_code, 1) << arguments.front();
    EXPECT_NE(result.err.find("standard output cannot be written"), std::string::npos);
  }
}

TEST(CliChat, ASecondTurnGoesOnFromTheFirst) {
  const auto result =
      run_program({"chat", "--temperature", "0", "--json"},
                  {"Remember this codeword: lantern-482\nWhat is the codeword?\n", -1, ""});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::vector<json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["reused_tokens"], 0);
  EXPECT_EQ(answers[1]["text"], "lantern-482");
  // Prompt and answer of the first turn; its end token was decided but not evaluated.
  EXPECT_EQ(answers[1]["reused_tokens"].get<int>(),
            answers[0]["prompt_tokens"].get<int>() + answers[0]["completion_tokens"].get<int>());
}

TEST(CliChat, ResetForgetsAndAnEmptyLineIsNoMessage) {
  const auto result = run_program(
      {"chat", "--temperature", "0", "--json"},
      {"Count from 2 to 4\n\n   \n/reset\nCount from 2 to 4\n  /exit  \nnot read\n", -1, ""});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::vector<json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["text"], "2, 3, 4");
  EXPECT_EQ(answers[1]["text"], "2, 3, 4");
  EXPECT_EQ(answers[1]["reused_tokens"], 0);
}

}  // namespace
}  // namespace replayssm
