// replayssm bench engine.
#include <nlohmann/json.hpp>

#include "program.h"
#include "source_dir.h"

namespace replayssm {
namespace {

using nlohmann::json;

json bench(std::vector<std::string> flags) {
  std::vector<std::string> arguments{"bench", "engine",       "--batch", "2",     "--context",
                                     "40",    "--max-tokens", "24",      "--json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const auto result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(CliBenchEngine, ReportsPlainPackedAndSpeculativeDecoding) {
  // With --deterministic a window gives the tokens of plain decoding, so that all drafts meant to
  // be right are.
  const json found = bench(
      {"--deterministic", "--speculative-algorithm", "MTP", "--simulated-accepted-length", "4"});
  for (const char* rate : {"prefill_tokens_per_s", "decode_tokens_per_s",
                           "packed_decode_tokens_per_s", "speculative_decode_tokens_per_s",
                           "fraction_of_bound", "ratio_to_packed", "ratio_to_plain"}) {
    EXPECT_GT(found[rate], 0) << rate;
  }
  EXPECT_EQ(found["window"], 4);
  EXPECT_EQ(found["accepted_length"], 4.0);
  const json plain = bench({});
  EXPECT_TRUE(plain["accepted_length"].is_null());
  EXPECT_EQ(plain.size(), found.size());
}

TEST(CliBenchEngine, NeedsNoWeightsWithTheDummyFormat) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / "replayssm_shape";
  std::filesystem::create_directories(directory);
  std::filesystem::copy_file(source_dir() / "tests/data/model/kda_hybrid_bfloat16_tied/config.json",
                             directory / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const json found = bench({"--model-path", directory.string(), "--load-format", "dummy"});
  EXPECT_GT(found["decode_tokens_per_s"], 0);
  EXPECT_EQ(found["load_format"], "dummy");
  const auto refused = run_program({"bench", "engine", "--model-path", directory.string()});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("model.safetensors"), std::string::npos) << refused.err;
}

TEST(CliBenchEngine, AnAcceptedLengthBeyondTheWindowIsRefused) {
  const auto refused = run_program(
      {"bench", "engine", "--speculative-algorithm", "MTP", "--simulated-accepted-length", "30"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err,
            "replayssm: --simulated-accepted-length: 30 is not accepted; expected 1 to 4, the "
            "window\n");
}

}  // namespace
}  // namespace replayssm
