// S01. FreeToken #508: the YaRN factor was ignored, or applied to short prompts. Frequencies and
// the factor on cosine and sine, from config.json to the table, equal those of transformers at
// factor 1 and 4; there is one table, whatever the prompt's length.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/config.h"
#include "model/rope.h"
#include "source_dir.h"

namespace replayssm {
namespace {

using nlohmann::json;

const std::filesystem::path kData = source_dir() / "tests/data";

json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return json::parse(in);
}

RopeConfig rope_of(const json& rope) {
  json config = read_json(kData / "model/ratio1_float32_flat_tied/config.json");
  config["rope_parameters"] = rope;
  config["max_position_embeddings"] = 1 << 20;
  const auto directory = std::filesystem::path(testing::TempDir()) / "s01";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "config.json") << config;
  const Result<ModelConfig> loaded = load_config(directory);
  if (!loaded) throw std::runtime_error(loaded.error().message);
  return loaded->rope;
}

TEST(S01, FrequenciesEqualTransformers) {
  const json cases = read_json(kData / "rope/frequencies.json");
  ASSERT_EQ(cases.size(), 5u);
  for (const json& golden : cases) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const RopeConfig rope = rope_of(golden["rope"]);
    const std::vector<float> frequencies = rope_frequencies(rope);
    const auto expected = golden["frequencies"].get<std::vector<double>>();
    ASSERT_EQ(frequencies.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(frequencies[i], expected[i], 1e-6 * expected[i]) << i;
    }
    EXPECT_NEAR(rope.attention_factor, golden["attention_factor"].get<double>(), 1e-6);
  }
}

TEST(S01, AShortPromptIsRotatedByTheSameTable) {
  const json cases = read_json(kData / "rope/frequencies.json");
  const json& golden = cases[3];
  ASSERT_EQ(golden["name"], "yarn factor 4");
  const std::vector<float> frequencies = rope_frequencies(rope_of(golden["rope"]));
  const double factor = golden["attention_factor"];
  const auto expected = golden["frequencies"].get<std::vector<double>>();
  std::vector<float> cosine(32), sine(32);
  for (const int position : {0, 1, 7, 4000}) {
    rope_angles(frequencies, factor, Depth{position}, DType::f32, cosine.data(), sine.data());
    for (std::size_t i = 0; i < 32; ++i) {
      // The angle itself is an fp32 product, as in transformers: 2^-24 of up to 4000 radians.
      const double tolerance = 1e-6 + position * 0x1p-23;
      EXPECT_NEAR(cosine[i], factor * std::cos(position * expected[i]), tolerance);
      EXPECT_NEAR(sine[i], factor * std::sin(position * expected[i]), tolerance);
    }
  }
}

}  // namespace
}  // namespace replayssm
