// eval and selftest, whole. Under a sanitizer, which is some fifty times slower, less is asked.
#include <nlohmann/json.hpp>

#include "program.h"
#include "source_dir.h"

namespace replayssm {
namespace {

using nlohmann::json;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(CliSelftest, PassesOnASmallRandomCheckpointWithoutTokenizer) {
  const auto result =
      run_program({"selftest", "--model-path",
                   source_dir().string() + "/tests/data/model/ratio1_bfloat16_yarn_nested_tied"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.find("FAIL"), std::string::npos);
}

TEST(CliSelftest, PassesWithBfloat16StatesAndShowsTheirDistance) {
  const auto result =
      run_program({"selftest", "--mamba-ssm-dtype", "bfloat16", "--model-path",
                   source_dir().string() + "/tests/data/model/ratio1_bfloat16_yarn_nested_tied"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.find("FAIL"), std::string::npos) << result.out;
  for (const char* line : {"bfloat16 state, replay off", "bfloat16 state, replay on"}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << line << result.out;
  }
}

TEST(CliSelftest, PassesOnTheEmbeddedModelWithEveryCheck) {
  if (kSanitized) GTEST_SKIP();
  const auto result = run_program({"selftest"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const char* check : {"chunks of 1 ",
                            "chunks of 7 ",
                            "chunks of 63",
                            "chunks of 64",
                            "chunks of 65",
                            "batch of 3",
                            "batch of 8",
                            "fork: child",
                            "fork: parent",
                            "pause and resume",
                            "cache hit at d = 77",
                            "cache hit at d - 1 = 76",
                            "cache hit at its checkpoint",
                            "host restore at d = 77",
                            "n = 4 against n = 1",
                            "pause in prefill through the cache",
                            "pause in decode through the host",
                            "windows of 1 to 8",
                            "drafts by NGRAM",
                            "drafts by EAGLE: what is held",
                            "float32: replay off against L = 8",
                            "float32: replay off against L = 16",
                            "float32: replay off against L = 32",
                            "bfloat16: replay off against L = 16",
                            "teacher-forced",
                            "0 of 176 positions differ"}) {
    EXPECT_NE(result.out.find(check), std::string::npos) << check;
  }
}

TEST(CliEval, ScoresTheTasksWithReplayOnAndOff) {
  const auto result = run_program({"eval", "--json", "--limit", kSanitized ? "1" : "8"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json scores = json::parse(result.out, nullptr, false);
  ASSERT_TRUE(scores.is_object()) << result.out;
  for (const char* task : {"repeat", "lookup", "count", "add", "sort", "json", "tools"}) {
    ASSERT_TRUE(scores["tasks"].contains(task)) << task;
    // Eight questions a task: one wrong answer by chance is allowed, two are not.
    const double least = kSanitized ? 0.0 : 0.875;
    EXPECT_GE(scores["tasks"][task].get<double>(), least) << task;
    for (const char* replay : {"on", "off"}) {
      EXPECT_GE(scores["replay"][replay]["tasks"][task].get<double>(), least) << task;
    }
  }
  // What it is about: off writes a state for each token and chunk, on for each block.
  const auto written = [&](const char* replay) {
    return scores["replay"][replay]["state_bytes_written"].get<double>();
  };
  EXPECT_GT(written("off"), 4 * written("on"));
}

TEST(CliEval, ABfloat16StateIsComparedWithFloat32TokenByToken) {
  const auto result = run_program({"eval", "--json", "--limit", kSanitized ? "1" : "2", "--replay",
                                   "on", "--mamba-ssm-dtype", "bfloat16"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json difference = json::parse(result.out)["log_probabilities"];
  EXPECT_GT(difference["tokens"].get<int>(), kSanitized ? 20 : 50);
  // Right answers of a trained model are likely ones, and rounded states are another function.
  EXPECT_GT(difference["mean_float32_state"].get<double>(), -0.1);
  EXPECT_GT(difference["mean"].get<double>(), -0.1);
  EXPECT_GT(difference["largest_difference"].get<double>(), 0);
  EXPECT_GE(difference["largest_difference"].get<double>(),
            difference["mean_difference"].get<double>());
}

TEST(CliEval, ACheckpointWithoutQuestionsIsRefusedByFile) {
  const auto result =
      run_program({"eval", "--model-path",
                   source_dir().string() + "/tests/data/model/ratio3_bfloat16_flat_untied"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("eval.jsonl"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace replayssm
