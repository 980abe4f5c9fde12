// plan, on the sizes of published models; nothing but config.json is read.
#include <nlohmann/json.hpp>

#include "program.h"

namespace replayssm {
namespace {

using nlohmann::json;

// A directory with a config.json of the Qwen3.5 family and nothing else.
class PlanDirectory {
 public:
  explicit PlanDirectory(int hidden, int layers, int heads, int kv_heads, int value_heads,
                         int intermediate, bool tied) {
    directory_ =
        std::filesystem::temp_directory_path() / ("replayssm_plan_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
    json config;
    config["architectures"] = {"Qwen3_5ForCausalLM"};
    config["model_type"] = "qwen3_5_text";
    config["hidden_size"] = hidden;
    config["num_hidden_layers"] = layers;
    config["full_attention_interval"] = 4;
    config["num_attention_heads"] = heads;
    config["num_key_value_heads"] = kv_heads;
    config["head_dim"] = 256;
    config["intermediate_size"] = intermediate;
    config["linear_num_key_heads"] = 16;
    config["linear_num_value_heads"] = value_heads;
    config["linear_key_head_dim"] = 128;
    config["linear_value_head_dim"] = 128;
    config["linear_conv_kernel_dim"] = 4;
    config["vocab_size"] = 248320;
    config["tie_word_embeddings"] = tied;
    config["max_position_embeddings"] = 262144;
    config["rms_norm_eps"] = 1e-6;
    config["hidden_act"] = "silu";
    config["dtype"] = "bfloat16";
    config["attention_bias"] = false;
    config["attn_output_gate"] = true;
    config["eos_token_id"] = 248044;
    config["rope_parameters"] = {
        {"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 0.25}};
    std::ofstream(directory_ / "config.json") << config.dump();
  }
  ~PlanDirectory() { std::filesystem::remove_all(directory_); }
  std::string path() const { return directory_.string(); }

 private:
  std::filesystem::path directory_;
};

json plan(const PlanDirectory& directory, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"plan", "--json", "--model-path", directory.path()});
  const auto result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(CliPlan, NumbersOfTheLargestDenseModelAreThoseOfItsShapes) {
  const PlanDirectory large(5120, 64, 24, 4, 48, 17408, false);
  const json plan64 = plan(
      large, {"--memory", "96GiB", "--max-running-requests", "16", "--context-length", "32768"});
  // 26.90 billion parameters in bfloat16; norms and taps, 0.03 %, count as float32.
  EXPECT_NEAR(plan64["bytes"]["weights"].get<double>(), 2 * 26.896e9, 0.02e9);
  // 48 layers x 48 heads x 128 x 128 float32, and 48 x 3 conv inputs of 10240 bfloat16.
  EXPECT_EQ(plan64["bytes_per_slot"], 48LL * (48 * 128 * 128 * 4 + 3 * 10240 * 2));
  EXPECT_EQ(plan64["kv_bytes_per_token"], 64 * 1024);
  // As many sequences are kept by the prefix cache as run, and as many checkpoints again.
  EXPECT_EQ(plan64["kept_sequences"], 16);
  EXPECT_EQ(plan64["slots"], 3 * 16);
  const json uncached = plan(large, {"--memory", "96GiB", "--max-running-requests", "16",
                                     "--context-length", "32768", "--disable-radix-cache"});
  EXPECT_EQ(uncached["slots"], 16);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : plan64["bytes"].items()) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(plan64["used"], sum);
  EXPECT_LE(sum, plan64["budget"].get<std::int64_t>());
}

TEST(CliPlan, SpeculationIsPrintedBesideTheSnapshotsItReplaces) {
  const PlanDirectory large(5120, 64, 24, 4, 48, 17408, false);
  const std::vector<std::string> common{"--memory", "96GiB", "--context-length", "32768"};
  auto with = common;
  with.insert(with.end(), {"--speculative-num-draft-tokens", "8"});
  const json plain = plan(large, common);
  const json speculative = plan(large, with);
  const double rings = speculative["ring_bytes_per_request"].get<double>() +
                       speculative["conv_ring_bytes_per_request"].get<double>();
  EXPECT_LT(rings, 0.1 * 8 * speculative["bytes_per_slot"].get<double>());
  EXPECT_EQ(speculative["bytes_per_slot"], plain["bytes_per_slot"]);
  // The draft head's weights, and a layer more of keys and values.
  EXPECT_GT(speculative["bytes"]["drafter"].get<std::int64_t>(), 0);
  EXPECT_EQ(speculative["kv_bytes_per_token"], 17 * 4 * 1024);
  auto ngram = with;
  ngram.insert(ngram.end(), {"--speculative-algorithm", "NGRAM"});
  const json rings_alone = plan(large, ngram);
  EXPECT_EQ(rings_alone["kv_bytes_per_token"], plain["kv_bytes_per_token"]);
  EXPECT_GE(rings_alone["max_running_requests"].get<int>(),
            plain["max_running_requests"].get<int>() - 1);
  auto table = with;
  table.insert(table.begin(), {"plan", "--model-path", large.path()});
  const auto text = run_program(table);
  EXPECT_NE(text.out.find("instead of 8 state snapshots of"), std::string::npos) << text.out;
}

TEST(CliPlan, ABudgetThatIsTooSmallIsRefusedWithItsParts) {
  const PlanDirectory large(5120, 64, 24, 4, 48, 17408, false);
  const auto result = run_program({"plan", "--memory", "24GiB", "--model-path", large.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  for (const char* part : {"24.0 GiB is not enough; at least", "weights 50.1 GiB", "workspace",
                           "state 146.8 MiB", "records", "conv inputs", "KV for one context"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << ": " << result.err;
  }
}

TEST(CliPlan, ASmallModelFitsWithItsWholeContextOrAsMuchAsThereIsRoomFor) {
  const PlanDirectory small(1024, 24, 8, 2, 16, 3584, true);
  const json roomy = plan(small, {"--memory", "24GiB"});
  EXPECT_EQ(roomy["context_length"], 262144);
  EXPECT_EQ(roomy["bytes_per_slot"], 18LL * (16 * 128 * 128 * 4 + 3 * 6144 * 2));
  const json tight = plan(small, {"--memory", "2500MiB", "--max-running-requests", "1"});
  EXPECT_LT(tight["context_length"].get<int>(), 262144);
  EXPECT_GE(tight["context_length"].get<int>(), 2048);
  EXPECT_EQ(tight["context_length"].get<int>() % 1024, 0);
}

TEST(CliPlan, WithReplayOffThereAreNoRings) {
  const PlanDirectory small(1024, 24, 8, 2, 16, 3584, true);
  const json off = plan(small, {"--memory", "24GiB", "--disable-linear-replayssm"});
  EXPECT_EQ(off["ring_bytes_per_request"], 0);
  EXPECT_EQ(off["bytes"]["record rings"], 0);
}

// What is on the GPU: a draft head's weights and layer are; a block drafter, with its part of the
// pages, is on the host, as what is kept for any drafter.
TEST(CliPlan, OnAGpuOnlyWhatIsThereIsCounted) {
  const auto planned = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"plan", "--json", "--memory", "2GiB", "--device", "cuda",
                                 "--max-running-requests", "4", "--context-length", "512"});
    const auto result = run_program(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  };
  const json plain = planned({});
  const json deterministic = planned({"--deterministic"});
  // Attention that is not split keeps no partial results.
  EXPECT_LT(deterministic["bytes"]["workspace"], plain["bytes"]["workspace"]);
  const json eagle = planned({"--speculative-algorithm", "EAGLE"});
  const json ngram =
      planned({"--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "4"});
  EXPECT_GT(eagle["bytes"]["drafter"], 0);
  EXPECT_GT(eagle["bytes"]["workspace"], ngram["bytes"]["workspace"]);
  // Three attention layers instead of the model's two.
  EXPECT_EQ(2 * eagle["bytes"]["KV pages"].get<std::int64_t>(),
            3 * ngram["bytes"]["KV pages"].get<std::int64_t>());
  const json dflash = planned({"--speculative-algorithm", "DFLASH"});
  EXPECT_FALSE(dflash["bytes"].contains("drafter"));
  EXPECT_EQ(dflash["bytes"]["KV pages"], ngram["bytes"]["KV pages"]);
  EXPECT_GT(dflash["kv_bytes_per_token"], plain["kv_bytes_per_token"]);
}

}  // namespace
}  // namespace replayssm
