// Faults B01 (vllm-project/vllm#40696) and B02 (vllm-project/vllm#54504): the size of a state
// forces cache blocks of 528 or 4,224 tokens, so that shorter prompts never hit. Here a hit does
// not depend on the page size, nor on how many linear layers there are.
#include <gtest/gtest.h>

#include "cached_engine.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

void expect_hit(const EngineOptions& options) {
  CachedEngine cached(options);
  const auto prompt = cached.prompt(100, 1);
  const auto first = cached.ask(prompt);
  const auto second = cached.ask(prompt);
  EXPECT_EQ(second.reused_tokens, 99);
  EXPECT_EQ(second.output, first.output);
}

TEST(B01, APromptOfAHundredTokensHitsWithPagesOfAnySize) {
  for (const int page_tokens : {1, 16, 64, 200, 528}) {
    EngineOptions options = cached_options();
    options.page_tokens = page_tokens;
    expect_hit(options);
  }
}

TEST(B02, AndWithThirtyLinearLayers) {
  TestCheckpoint checkpoint("ratio1_float32_flat_tied");  // layers 0, 1, 2 linear, 3 attention
  constexpr int kLinear = 30;
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    EditableTensors more;
    for (const auto& [name, tensor] : tensors) {
      const auto at = name.find("layers.");
      if (at == std::string::npos) {
        more[name] = tensor;
        continue;
      }
      const std::string head = name.substr(0, at + 7);
      const std::string tail = name.substr(at + 8);
      const int layer = name[at + 7] - '0';
      if (layer == 3) {
        more[head + std::to_string(kLinear) + tail] = tensor;
        continue;
      }
      for (int i = layer; i < kLinear; i += 3) more[head + std::to_string(i) + tail] = tensor;
    }
    tensors = std::move(more);
  });
  checkpoint.edit_config([](nlohmann::json& config) {
    config["num_hidden_layers"] = kLinear + 1;
    config.erase("full_attention_interval");
    config["layer_types"] = std::vector<std::string>(kLinear, "linear_attention");
    config["layer_types"].push_back("full_attention");
  });
  EngineOptions options = cached_options();
  options.model_path = checkpoint.path();
  expect_hit(options);
}

}  // namespace
}  // namespace replayssm
