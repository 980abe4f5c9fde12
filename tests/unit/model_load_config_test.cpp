// What load_config accepts, and what it refuses by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/config.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kFlat = "ratio3_bfloat16_flat_untied";
constexpr const char* kNested = "ratio2_float16_nested_untied";
constexpr const char* kYarn = "ratio1_bfloat16_yarn_nested_tied";

ModelConfig loaded(const TestCheckpoint& checkpoint) {
  auto config = load_config(checkpoint.path());
  if (!config) throw std::runtime_error(config.error().message);
  return *config;
}

// The error after `edit`; empty if it loads.
std::string refusal(const std::function<void(json&)>& edit, const char* name = kFlat) {
  const TestCheckpoint checkpoint(name);
  checkpoint.edit_config(edit);
  const auto config = load_config(checkpoint.path());
  return config ? "" : config.error().message;
}

TEST(ModelConfig, qwen3_next_is_read_where_no_layer_uses_its_experts) {
  const TestCheckpoint checkpoint("next_ratio2_bfloat16_untied");
  const auto config = load_config(checkpoint.path());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->family, ModelFamily::qwen3_next);
  EXPECT_EQ(config->linear.value_heads, 4);
  EXPECT_EQ(config->rope.theta, 10'000.0);
  EXPECT_EQ(config->rope.rotary_dim, 64);
}

TEST(ModelConfig, qwen3_next_with_a_layer_of_experts_is_refused) {
  struct Case {
    const char* change;
    const char* layer;  // empty: accepted
  };
  const Case cases[] = {
      {R"({"mlp_only_layers": [0, 2]})", "Layer 1 "},
      {R"({"mlp_only_layers": null})", "Layer 0 "},
      {R"({"mlp_only_layers": [0, 2], "decoder_sparse_step": 2})", "Layer 1 "},
      {R"({"mlp_only_layers": [1], "decoder_sparse_step": 2})", ""},
      {R"({"mlp_only_layers": [], "num_experts": 0})", ""},
      {R"({"mlp_only_layers": [], "num_experts": null})", "num_experts: 512"},
  };
  for (const Case& c : cases) {
    const TestCheckpoint checkpoint("next_ratio2_bfloat16_untied");
    checkpoint.edit_config(
        [&](auto& config) { config.merge_patch(nlohmann::json::parse(c.change)); });
    const auto config = load_config(checkpoint.path());
    if (*c.layer == 0) {
      EXPECT_TRUE(config.ok()) << c.change;
    } else {
      ASSERT_FALSE(config.ok()) << c.change;
      EXPECT_THAT(config.error().message,
                  AllOf(HasSubstr("num_experts"), HasSubstr("a dense model"), HasSubstr(c.layer)));
    }
  }
}

TEST(ModelConfig, kimi_linear_with_linear_and_dense_layers_is_read) {
  const ModelConfig config = loaded(TestCheckpoint("kimi_bfloat16_untied"));
  EXPECT_EQ(config.family, ModelFamily::kimi_linear);
  EXPECT_EQ(config.layers, std::vector(3, LayerKind::linear));
  EXPECT_EQ(config.linear, (HeadShape{GateKind::kda, 2, 2}));
  EXPECT_FALSE(config.zero_centred_norms);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.max_positions, 1024);
  EXPECT_EQ(config.attention.group(), 0);
}

TEST(ModelConfig, what_kimi_linear_needs_beyond_that_is_refused_by_name) {
  struct Case {
    const char* change;
    const char* field;
    const char* accepted;
  };
  const Case cases[] = {
      {R"({"linear_attn_config": {"kda_layers": [1, 2], "full_attn_layers": [3]}})",
       "linear_attn_config.full_attn_layers: a list of 1", "latent attention is not built"},
      {R"({"linear_attn_config": {"kda_layers": [1, 2]}})", "linear_attn_config.kda_layers",
       "every layer, 1 to 3"},
      {R"({"linear_attn_config": {"kda_layers": [1, 2, 2]}})", "linear_attn_config.kda_layers",
       "every layer, 1 to 3"},
      {R"({"linear_attn_config": {"kda_layers": [0, 1, 2]}})",
       "linear_attn_config.kda_layers[0]: 0", "from 1 to 3"},
      {R"({"linear_attn_config": {"head_dim": 64}})", "linear_attn_config.head_dim: 64", "128"},
      {R"({"linear_attn_config": {"num_heads": null}})", "linear_attn_config.num_heads: missing",
       "an integer"},
      {R"({"linear_attn_config": {"short_conv_kernel_size": 3}})",
       "linear_attn_config.short_conv_kernel_size: 3", "4"},
      {R"({"linear_attn_config": null})", "linear_attn_config: missing", "an object"},
      {R"({"linear_attn_config": []})", "linear_attn_config", "an object"},
      {R"({"first_k_dense_replace": 1})", "first_k_dense_replace: 1", "Experts are not built"},
      {R"({"first_k_dense_replace": null})", "first_k_dense_replace: 1", "Experts are not built"},
      {R"({"attn_res_block_size": 4})", "attn_res_block_size: 4", "absent or 0"},
      {R"({"num_nextn_predict_layers": 1})", "num_nextn_predict_layers: 1", "absent or 0"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(refusal([&](json& config) { config.merge_patch(json::parse(c.change)); },
                        "kimi_bfloat16_untied"),
                AllOf(HasSubstr(c.field), HasSubstr(c.accepted)))
        << c.change;
  }
}

TEST(ModelConfig, kda_hybrid_has_the_heads_of_kimi_linear_and_the_rest_of_qwen3_5) {
  const ModelConfig config = loaded(TestCheckpoint("kda_hybrid_bfloat16_tied"));
  EXPECT_EQ(config.family, ModelFamily::kda_hybrid);
  EXPECT_EQ(config.linear, (HeadShape{GateKind::kda, 2, 2}));
  EXPECT_EQ(config.count(LayerKind::attention), 1);
  EXPECT_TRUE(config.zero_centred_norms);
  EXPECT_EQ(config.rope.rotary_dim, 64);
  EXPECT_THAT(refusal([](json& c) { c["num_experts"] = 8; }, "kda_hybrid_bfloat16_tied"),
              HasSubstr("num_experts: 8"));
}

TEST(ModelConfig, flat_qwen3_5_text_is_read) {
  const ModelConfig config = loaded(TestCheckpoint(kFlat));
  EXPECT_EQ(config.model_type, "qwen3_5_text");
  EXPECT_EQ(config.tensor_prefix, "model.");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(config.layer_count(), 4);
  EXPECT_EQ(config.attention.heads, 2);
  EXPECT_EQ(config.attention.kv_heads, 1);
  EXPECT_EQ(config.attention.head_dim, 256);
  EXPECT_TRUE(config.attention.output_gate);
  EXPECT_EQ(config.linear.key_heads, 2);
  EXPECT_EQ(config.linear.value_heads, 6);
  EXPECT_EQ(config.rope.kind, RopeKind::standard);
  EXPECT_EQ(config.rope.rotary_dim, 64);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.max_positions, 1024);
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(config.weight_type, DType::bf16);
  EXPECT_EQ(config.state_type, DType::f32);
  EXPECT_EQ(config.bos, -1);
}

TEST(ModelConfig, nested_qwen3_5_is_read_from_its_text_config) {
  const ModelConfig config = loaded(TestCheckpoint(kNested));
  EXPECT_EQ(config.model_type, "qwen3_5");
  EXPECT_EQ(config.tensor_prefix, "model.language_model.");
  EXPECT_EQ(config.weight_type, DType::f16);
  EXPECT_EQ(config.vocab_size, 512);
}

TEST(ModelConfig, layer_types_rule_over_the_interval) {
  const auto linear = LayerKind::linear;
  const auto attention = LayerKind::attention;
  const ModelConfig irregular = loaded(TestCheckpoint(kNested));
  EXPECT_THAT(irregular.layers, ElementsAre(attention, linear, linear, attention, linear));

  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_config([](json& c) {
    c["layer_types"] = {"attention", "linear_attention", "full_attention", "linear_attention"};
    c["full_attention_interval"] = 4;
  });
  EXPECT_THAT(loaded(checkpoint).layers, ElementsAre(attention, linear, attention, linear));
}

TEST(ModelConfig, without_layer_types_every_interval_th_layer_is_attention) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_config([](json& c) {
    c.erase("layer_types");
    c["num_hidden_layers"] = 6;
    c["full_attention_interval"] = 3;
  });
  const ModelConfig config = loaded(checkpoint);
  EXPECT_EQ(config.count(LayerKind::attention), 2);
  EXPECT_EQ(config.layers[2], LayerKind::attention);
  EXPECT_EQ(config.layers[5], LayerKind::attention);

  checkpoint.edit_config([](json& c) { c.erase("full_attention_interval"); });
  EXPECT_EQ(loaded(checkpoint).layers[3], LayerKind::attention);
}

TEST(ModelConfig, a_missing_partial_rotary_factor_means_a_quarter) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_config([](json& c) { c["rope_parameters"].erase("partial_rotary_factor"); });
  EXPECT_EQ(loaded(checkpoint).rope.rotary_dim, 64);
  checkpoint.edit_config([](json& c) { c["partial_rotary_factor"] = 0.5; });
  EXPECT_EQ(loaded(checkpoint).rope.rotary_dim, 128);
}

TEST(ModelConfig, flat_rope_fields_are_read) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_config([](json& c) {
    c.erase("rope_parameters");
    c["rope_theta"] = 10'000'000;
    c["rope_scaling"] = {
        {"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 256}};
  });
  const RopeConfig rope = loaded(checkpoint).rope;
  EXPECT_EQ(rope.kind, RopeKind::yarn);
  EXPECT_EQ(rope.theta, 1e7);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_max_positions, 256);
}

TEST(ModelConfig, mrope_is_plain_rope_for_text) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_config([](json& c) { c["rope_parameters"]["rope_type"] = "mrope"; });
  EXPECT_EQ(loaded(checkpoint).rope.kind, RopeKind::standard);
}

TEST(ModelConfig, yarn_parameters_are_resolved) {
  const RopeConfig rope = loaded(TestCheckpoint(kYarn)).rope;
  EXPECT_EQ(rope.kind, RopeKind::yarn);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_max_positions, 64);
  EXPECT_DOUBLE_EQ(rope.attention_factor, 0.1 * std::log(4.0) + 1.0);
  EXPECT_EQ(rope.beta_fast, 32);
  EXPECT_EQ(rope.beta_slow, 1);
  EXPECT_TRUE(rope.truncate);

  const TestCheckpoint checkpoint(kYarn);
  checkpoint.edit_config([](json& c) {
    json& yarn = c["text_config"]["rope_parameters"];
    yarn["attention_factor"] = 1.5;
    yarn["beta_fast"] = 16;
    yarn["truncate"] = false;
    yarn.erase("factor");
  });
  const RopeConfig explicit_values = loaded(checkpoint).rope;
  EXPECT_EQ(explicit_values.attention_factor, 1.5);
  EXPECT_EQ(explicit_values.beta_fast, 16);
  EXPECT_FALSE(explicit_values.truncate);
  EXPECT_EQ(explicit_values.factor, 1024 / 64);
}

// Model cards tell people to add rope_scaling and leave max_position_embeddings alone.
TEST(ModelConfig, yarn_extends_the_positions_by_its_factor) {
  const TestCheckpoint checkpoint(kFlat);  // 1024 positions
  checkpoint.edit_config([](json& c) {
    c["rope_scaling"] = {
        {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  });
  EXPECT_EQ(loaded(checkpoint).max_positions, 4096);
  checkpoint.edit_config([](json& c) { c["max_position_embeddings"] = 8192; });
  EXPECT_EQ(loaded(checkpoint).max_positions, 8192);
  checkpoint.edit_config([](json& c) { c["rope_scaling"]["factor"] = 1e6; });
  checkpoint.edit_config(
      [](json& c) { c["rope_scaling"]["original_max_position_embeddings"] = 1 << 30; });
  EXPECT_EQ(loaded(checkpoint).max_positions, 1 << 30);
}

TEST(ModelConfig, pad_and_bos_behind_the_vocabulary_are_none) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_config([](json& c) {
    c["pad_token_id"] = 512;
    c["bos_token_id"] = 512;
  });
  EXPECT_EQ(loaded(checkpoint).pad, -1);
  EXPECT_EQ(loaded(checkpoint).bos, -1);
  checkpoint.edit_config([](json& c) { c["pad_token_id"] = 513; });
  EXPECT_FALSE(load_config(checkpoint.path()).ok());
}

TEST(ModelConfig, rows_past_the_tokenizers_largest_id_are_padding) {
  const ModelConfig config = loaded(TestCheckpoint(kFlat));
  EXPECT_EQ(config.vocab_rows, 512);
  EXPECT_EQ(config.vocab_size, 500);
}

TEST(ModelConfig, vocabulary_never_exceeds_the_rows) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_config([](json& c) {
    c["vocab_size"] = 400;
    c["eos_token_id"] = 3;
  });
  EXPECT_EQ(loaded(checkpoint).vocab_size, 400);
  EXPECT_THAT(loaded(checkpoint).eos, ElementsAre(3));
}

TEST(ModelConfig, ids_of_added_tokens_count_for_the_vocabulary) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.write("tokenizer.json", R"({"model": {"vocab": {"a": 0, "b": 1}},
      "added_tokens": [{"id": 77, "content": "<|im_end|>"}]})");
  EXPECT_EQ(loaded(checkpoint).vocab_size, 78);
  EXPECT_TRUE(loaded(checkpoint).is_eos(77));
}

TEST(ModelConfig, without_a_tokenizer_every_row_is_a_token) {
  EXPECT_EQ(loaded(TestCheckpoint(kYarn)).vocab_size, 512);
}

TEST(ModelConfig, a_head_is_tied_if_either_level_says_so) {
  EXPECT_FALSE(loaded(TestCheckpoint(kNested)).tied_head);
  for (const bool inner : {false, true}) {
    const TestCheckpoint checkpoint(kNested);
    checkpoint.edit_config(
        [&](json& c) { (inner ? c["text_config"] : c)["tie_word_embeddings"] = true; });
    EXPECT_TRUE(loaded(checkpoint).tied_head);
  }
}

TEST(ModelConfig, generation_defaults_are_read) {
  const TestCheckpoint checkpoint(kFlat);
  EXPECT_FALSE(loaded(checkpoint).generation.temperature.has_value());
  checkpoint.write("generation_config.json",
                   R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
                       "min_p": null, "repetition_penalty": 1.05, "eos_token_id": [7, 9]})");
  const GenerationDefaults generation = loaded(checkpoint).generation;
  EXPECT_EQ(generation.do_sample, true);
  EXPECT_EQ(generation.temperature, 0.6);
  EXPECT_EQ(generation.top_k, 20);
  EXPECT_EQ(generation.top_p, 0.95);
  EXPECT_EQ(generation.min_p, std::nullopt);
  EXPECT_EQ(generation.repetition_penalty, 1.05);
  EXPECT_THAT(generation.eos, ElementsAre(7, 9));
}

TEST(ModelConfig, generation_defaults_out_of_range_are_refused_by_name) {
  const TestCheckpoint checkpoint(kFlat);
  for (const auto& [text, field] :
       std::map<std::string, std::string>{{R"({"temperature": -1})", "temperature: -1"},
                                          {R"({"temperature": "hot"})", "temperature: \"hot\""},
                                          {R"({"top_k": 2.5})", "top_k: 2.5"},
                                          {R"({"top_p": 0})", "top_p: 0"},
                                          {R"({"eos_token_id": [1, -2]})", "eos_token_id[1]: -2"},
                                          {R"({"do_sample": 1})", "do_sample: 1"}}) {
    checkpoint.write("generation_config.json", text);
    const auto config = load_config(checkpoint.path());
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.error().message, HasSubstr("generation_config.json: " + field));
  }
}

struct Refusal {
  const char* why;
  const char* patch;  // merged into config.json
  const char* field_and_value;
  const char* accepted;
};

class RefusedConfig : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfig, is_named_with_what_would_be_accepted) {
  const std::string message =
      refusal([](json& c) { c.merge_patch(json::parse(GetParam().patch)); });
  EXPECT_THAT(message, HasSubstr(std::string("config.json: ") + GetParam().field_and_value));
  EXPECT_THAT(message, HasSubstr(GetParam().accepted));
}

const Refusal kRefusals[] = {
    {"attention_bias", R"({"attention_bias": true})", "attention_bias: true", "false"},
    {"hidden_act", R"({"hidden_act": "gelu"})", "hidden_act: \"gelu\"", "silu"},
    {"output_gate_type", R"({"output_gate_type": "sigmoid"})", "output_gate_type: \"sigmoid\"",
     "silu or swish"},
    {"key_head_dim", R"({"linear_key_head_dim": 64})", "linear_key_head_dim: 64", "128"},
    {"value_head_dim", R"({"linear_value_head_dim": 256})", "linear_value_head_dim: 256", "128"},
    {"conv_width", R"({"linear_conv_kernel_dim": 3})", "linear_conv_kernel_dim: 3", "4"},
    {"rope_type", R"({"rope_parameters": {"rope_type": "llama3"}})",
     "rope_parameters.rope_type: \"llama3\"", "default, mrope or yarn"},
    {"layer_type", R"({"layer_types": ["linear_attention", "sliding_attention",
      "linear_attention", "full_attention"]})",
     "layer_types[1]: \"sliding_attention\"", "linear_attention, full_attention"},
    {"layer_type_not_text", R"({"layer_types": [1, 2, 3, 4]})", "layer_types[0]: 1",
     "linear_attention"},
    {"layer_types_length", R"({"layer_types": ["linear_attention"]})", "layer_types: a list of 1",
     "num_hidden_layers (4)"},
    {"quant_method", R"({"quantization_config": {"quant_method": "awq"}})",
     "quantization_config.quant_method: \"awq\"", "fp8"},
    {"no_quant_method", R"({"quantization_config": {}})",
     "quantization_config.quant_method: missing", "a string"},
    {"quantised_by_tensor", R"({"quantization_config": {"quant_method": "fp8"}})",
     "quantization_config.weight_block_size: null", "[128, 128]"},
    {"other_blocks",
     R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 128]}})",
     "quantization_config.weight_block_size: a list of 2", "[128, 128]"},
    {"float8_format", R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}})",
     "quantization_config.fmt: \"e5m2\"", "e4m3"},
    {"static_activations",
     R"({"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}})",
     "quantization_config.activation_scheme: \"static\"", "dynamic"},
    {"excluded_modules",
     R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
      "modules_to_not_convert": "lm_head"}})",
     "quantization_config.modules_to_not_convert: \"lm_head\"", "a list of module names"},
    {"experts", R"({"num_experts": 256})", "num_experts: 256", "dense"},
    {"qwen4_exp", R"({"model_type": "qwen4_exp"})", "model_type: \"qwen4_exp\"",
     "different architecture"},
    {"other_family_inside", R"({"text_config": {"model_type": "qwen3_next"}})",
     "text_config.model_type: \"qwen3_next\"", "the family of qwen3_5_text"},
    {"moe", R"({"model_type": "qwen3_5_moe_text"})", "model_type: \"qwen3_5_moe_text\"",
     "qwen3_5, qwen3_5_text, qwen3_next"},
    {"no_model_type", R"({"model_type": null})", "model_type: missing", "a string"},
    {"state_type", R"({"mamba_ssm_dtype": "int8"})", "mamba_ssm_dtype: \"int8\"",
     "float32 or bfloat16"},
    {"dtype", R"({"dtype": "float64"})", "dtype: \"float64\"", "bfloat16, float16 or float32"},
    {"head_groups", R"({"linear_num_value_heads": 3})", "linear_num_value_heads: 3",
     "a multiple of linear_num_key_heads (2)"},
    {"kv_groups", R"({"num_attention_heads": 3, "num_key_value_heads": 2})",
     "num_key_value_heads: 2", "a divisor of num_attention_heads (3)"},
    {"missing", R"({"hidden_size": null})", "hidden_size: missing", "an integer from 1"},
    {"text_for_number", R"({"hidden_size": "64"})", "hidden_size: \"64\"", "an integer from 1"},
    {"list_for_number", R"({"hidden_size": [64]})", "hidden_size: a list of 1",
     "an integer from 1"},
    {"object_for_number", R"({"vocab_size": {}})", "vocab_size: an object", "an integer"},
    {"negative", R"({"num_hidden_layers": -4})", "num_hidden_layers: -4", "an integer from 1"},
    {"zero", R"({"num_attention_heads": 0})", "num_attention_heads: 0", "an integer from 1"},
    {"fraction", R"({"intermediate_size": 96.5})", "intermediate_size: 96.5", "an integer"},
    {"huge", R"({"vocab_size": 18446744073709551615})", "vocab_size: 18446744073709551615",
     "an integer from 1"},
    {"beyond_64_bits", R"({"vocab_size": 1000000000000000000000})", "vocab_size: 1e+21",
     "an integer from 1"},
    {"beyond_32_bits", R"({"hidden_size": 4294967360})", "hidden_size: 4294967360",
     "an integer from 1"},
    {"eps", R"({"rms_norm_eps": 0})", "rms_norm_eps: 0", "a number above 0"},
    {"text_for_real", R"({"rms_norm_eps": "tiny"})", "rms_norm_eps: \"tiny\"", "a number"},
    {"rotary_factor", R"({"rope_parameters": {"partial_rotary_factor": 1.5}})",
     "rope_parameters.partial_rotary_factor: 1.5", "a number above 0 and up to 1"},
    {"theta", R"({"rope_parameters": {"rope_theta": -1}})", "rope_parameters.rope_theta: -1",
     "a number above 1"},
    {"rope_list", R"({"rope_parameters": [1]})", "rope_parameters: a list of 1", "an object"},
    {"yarn_factor", R"({"rope_parameters": {"rope_type": "yarn", "factor": -4}})",
     "rope_parameters.factor: -4", "a number above 0"},
    {"yarn_positions",
     R"({"rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 0}})",
     "rope_parameters.original_max_position_embeddings: 0", "an integer from 1"},
    {"yarn_betas", R"({"rope_parameters": {"rope_type": "yarn", "beta_slow": 64}})",
     "rope_parameters.beta_slow: 64", "up to beta_fast (32)"},
    {"tied_text", R"({"tie_word_embeddings": "yes"})", "tie_word_embeddings: \"yes\"",
     "true or false"},
    {"eos_outside", R"({"eos_token_id": 512})", "eos_token_id: 512", "an integer from 0 to 511"},
    {"eos_in_list", R"({"eos_token_id": [1, null]})", "eos_token_id[1]: null",
     "an integer from 0 to 511"},
    {"text_config_list", R"({"text_config": [1]})", "text_config: a list of 1", "an object"},
    {"inner_type", R"({"text_config": {"model_type": "qwen4_exp_text"}})",
     "text_config.model_type: \"qwen4_exp_text\"", "different architecture"},
};

INSTANTIATE_TEST_SUITE_P(Fields, RefusedConfig, testing::ValuesIn(kRefusals),
                         [](const auto& refusal_case) {
                           return std::string(refusal_case.param.why);
                         });

TEST(ModelConfig, quantisation_in_either_level_is_refused) {
  const auto quantised = [](json& level) { level["quantization_config"] = {{"bits", 4}}; };
  EXPECT_THAT(refusal(quantised, kNested), HasSubstr("config.json: quantization_config"));
  EXPECT_THAT(refusal([&](json& c) { quantised(c["text_config"]); }, kNested),
              HasSubstr("config.json: text_config.quantization_config"));
}

TEST(ModelConfig, files_that_are_not_json_objects_are_refused_by_name) {
  const TestCheckpoint checkpoint(kFlat);
  const std::string deep(200'000, '[');
  for (const std::string& text :
       {std::string(""), std::string("{"), std::string("[]"), std::string("{\"a\": 1e999}"),
        std::string("{\"a\": NaN}"), std::string("{\"\xff\": 1}"), deep,
        deep + std::string(200'000, ']')}) {
    checkpoint.write("config.json", text);
    const auto config = load_config(checkpoint.path());
    ASSERT_FALSE(config.ok());
    EXPECT_THAT(config.error().message, HasSubstr("config.json"));
  }
  checkpoint.remove("config.json");
  EXPECT_THAT(load_config(checkpoint.path()).error().message, HasSubstr("no such file"));
}

TEST(ModelConfig, a_deep_value_where_a_number_belongs_is_refused_without_recursion) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.write("config.json", R"({"model_type": "qwen3_5_text", "hidden_size": )" +
                                      std::string(100'000, '[') + std::string(100'000, ']') + "}");
  EXPECT_THAT(load_config(checkpoint.path()).error().message,
              HasSubstr("hidden_size: a list of 1"));
}

TEST(ModelConfig, faults_in_tokenizer_files_are_named) {
  const TestCheckpoint checkpoint(kFlat);
  const auto error_with = [&](const char* text) {
    checkpoint.write("tokenizer.json", text);
    const auto config = load_config(checkpoint.path());
    return config ? std::string() : config.error().message;
  };
  EXPECT_THAT(error_with("{"), HasSubstr("tokenizer.json: not valid JSON"));
  EXPECT_THAT(error_with("{}"), HasSubstr("tokenizer.json: model.vocab"));
  EXPECT_THAT(error_with(R"({"model": {"vocab": {}}})"), HasSubstr("model.vocab: empty"));
  EXPECT_THAT(error_with(R"({"model": {"vocab": {"a": -1}}})"),
              HasSubstr("tokenizer.json: id of token \"a\": -1"));
  EXPECT_THAT(error_with(R"({"model": {"vocab": {"a": 3000000000}}})"),
              HasSubstr("tokenizer.json: id of token \"a\": 3000000000"));
  EXPECT_THAT(error_with(R"({"model": {"vocab": {"a": 1}}, "added_tokens": [{"id": 2}]})"),
              HasSubstr("added_tokens"));
}

}  // namespace
}  // namespace replayssm
