// load_weights: every tensor in its role, with the type and shape that the configuration calls for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "model/safetensors.h"
#include "model/weights.h"
#include "source_dir.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kFlat = "ratio3_bfloat16_flat_untied";     // two shards
constexpr const char* kNested = "ratio2_float16_nested_untied";  // vision tower, draft head
constexpr const char* kTied = "ratio1_float32_flat_tied";

Result<Weights> load(const TestCheckpoint& checkpoint) {
  const auto config = load_config(checkpoint.path());
  if (!config) return config.error();
  return load_weights(checkpoint.path(), *config);
}

std::string refusal(const TestCheckpoint& checkpoint) {
  const auto weights = load(checkpoint);
  return weights ? "" : weights.error().message;
}

std::string refusal_after(const char* name, const std::function<void(EditableTensors&)>& edit) {
  const TestCheckpoint checkpoint(name);
  checkpoint.edit_tensors(edit);
  return refusal(checkpoint);
}

void expect_same(const WeightMatrix& matrix, const EditableTensor& tensor) {
  ASSERT_EQ(matrix.rows, tensor.shape[0]);
  ASSERT_EQ(matrix.cols, tensor.shape[1]);
  ASSERT_EQ(static_cast<std::size_t>(matrix.bytes()), tensor.data.size());
  EXPECT_EQ(std::memcmp(matrix.data, tensor.data.data(), tensor.data.size()), 0);
}

void expect_same(const std::vector<float>& vector, const EditableTensor& tensor, float added) {
  auto expected = values_of(tensor);
  for (float& x : expected) x += added;
  EXPECT_EQ(vector, expected);
}

TEST(ModelWeights, every_tensor_is_in_its_role_and_zero_centred_norms_are_scales) {
  const TestCheckpoint checkpoint(kFlat);
  EditableTensors stored;
  checkpoint.edit_tensors([&](EditableTensors& tensors) { stored = tensors; });
  const auto weights = load(checkpoint);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const auto tensor = [&](const std::string& name) { return stored.at("model." + name); };

  expect_same(weights->embedding, tensor("embed_tokens.weight"));
  expect_same(weights->head, stored.at("lm_head.weight"));
  expect_same(weights->final_norm_scale, tensor("norm.weight"), 1);
  ASSERT_EQ(weights->layers.size(), 4u);

  const auto& gdn = std::get<GdnWeights>(weights->layers[0].mixer);
  expect_same(gdn.qkv, tensor("layers.0.linear_attn.in_proj_qkv.weight"));
  expect_same(gdn.z, tensor("layers.0.linear_attn.in_proj_z.weight"));
  expect_same(gdn.b, tensor("layers.0.linear_attn.in_proj_b.weight"));
  expect_same(gdn.a, tensor("layers.0.linear_attn.in_proj_a.weight"));
  expect_same(gdn.out, tensor("layers.0.linear_attn.out_proj.weight"));
  expect_same(gdn.conv, tensor("layers.0.linear_attn.conv1d.weight"), 0);
  expect_same(gdn.a_log, tensor("layers.0.linear_attn.A_log"), 0);
  expect_same(gdn.dt_bias, tensor("layers.0.linear_attn.dt_bias"), 0);
  expect_same(gdn.norm_scale, tensor("layers.0.linear_attn.norm.weight"), 0);
  expect_same(weights->layers[0].mixer_norm_scale, tensor("layers.0.input_layernorm.weight"), 1);
  expect_same(weights->layers[0].mlp_norm_scale, tensor("layers.0.post_attention_layernorm.weight"),
              1);
  expect_same(weights->layers[0].mlp.gate, tensor("layers.0.mlp.gate_proj.weight"));
  expect_same(weights->layers[0].mlp.up, tensor("layers.0.mlp.up_proj.weight"));
  expect_same(weights->layers[0].mlp.down, tensor("layers.0.mlp.down_proj.weight"));

  const auto& attention = std::get<AttentionWeights>(weights->layers[3].mixer);
  expect_same(attention.q, tensor("layers.3.self_attn.q_proj.weight"));
  expect_same(attention.k, tensor("layers.3.self_attn.k_proj.weight"));
  expect_same(attention.v, tensor("layers.3.self_attn.v_proj.weight"));
  expect_same(attention.out, tensor("layers.3.self_attn.o_proj.weight"));
  expect_same(attention.q_norm_scale, tensor("layers.3.self_attn.q_norm.weight"), 1);
  expect_same(attention.k_norm_scale, tensor("layers.3.self_attn.k_norm.weight"), 1);
}

TEST(ModelWeights, every_tensor_of_a_kda_layer_is_in_its_role) {
  const TestCheckpoint checkpoint("kimi_bfloat16_untied");
  EditableTensors stored;
  checkpoint.edit_tensors([&](EditableTensors& tensors) { stored = tensors; });
  const auto weights = load(checkpoint);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const auto tensor = [&](const std::string& name) {
    return stored.at("model.layers.2.self_attn." + name);
  };
  const auto& kda = std::get<KdaWeights>(weights->layers[2].mixer);
  expect_same(kda.q, tensor("q_proj.weight"));
  expect_same(kda.k, tensor("k_proj.weight"));
  expect_same(kda.v, tensor("v_proj.weight"));
  expect_same(kda.forget_down, tensor("f_a_proj.weight"));
  expect_same(kda.forget_up, tensor("f_b_proj.weight"));
  expect_same(kda.b, tensor("b_proj.weight"));
  expect_same(kda.gate_down, tensor("g_a_proj.weight"));
  expect_same(kda.gate_up, tensor("g_b_proj.weight"));
  expect_same(kda.out, tensor("o_proj.weight"));
  expect_same(kda.a_log, tensor("A_log"), 0);
  expect_same(kda.dt_bias, tensor("dt_bias"), 0);
  expect_same(kda.norm_scale, tensor("o_norm.weight"), 0);
  EditableTensor taps = tensor("q_conv1d.weight");
  for (const char* name : {"k_conv1d.weight", "v_conv1d.weight"}) {
    const EditableTensor next = tensor(name);
    taps.data.insert(taps.data.end(), next.data.begin(), next.data.end());
  }
  expect_same(kda.conv, taps, 0);
  expect_same(weights->layers[2].mixer_norm_scale,
              stored.at("model.layers.2.input_layernorm.weight"), 0);
  expect_same(weights->final_norm_scale, stored.at("model.norm.weight"), 0);
}

TEST(ModelWeights, gates_are_read_from_bfloat16_and_float32) {
  const TestCheckpoint checkpoint(kFlat);  // stored as float32
  const auto wide = load(checkpoint);
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      if (tensor.dtype != "F32") continue;
      const auto values = values_of(tensor);
      tensor.dtype = "BF16";
      set_values(tensor, values);
    }
  });
  const auto narrow = load(checkpoint);
  ASSERT_TRUE(wide.ok() && narrow.ok());
  EXPECT_EQ(std::get<GdnWeights>(wide->layers[1].mixer).a_log,
            std::get<GdnWeights>(narrow->layers[1].mixer).a_log);
}

TEST(ModelWeights, float16_weights_stay_float16_and_widen_exactly) {
  const auto weights = load(TestCheckpoint(kNested));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->embedding.type, DType::f16);
  const auto& attention = std::get<AttentionWeights>(weights->layers[0].mixer);
  EXPECT_EQ(attention.q_norm_scale.size(), 256u);
}

TEST(ModelWeights, vision_tower_and_draft_head_are_left_alone) {
  const TestCheckpoint checkpoint(kNested);
  int ignored = 0;
  std::int64_t used = 0;
  checkpoint.edit_tensors([&](EditableTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      const bool other = name.starts_with("model.visual.") || name.starts_with("mtp.");
      ignored += other ? 1 : 0;
      used += other ? 0 : static_cast<std::int64_t>(tensor.data.size());
    }
  });
  EXPECT_GT(ignored, 2);
  const auto weights = load(checkpoint);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->bytes, used);
}

TEST(ModelWeights, the_embedded_checkpoint_loads) {
  const auto directory = source_dir() / "models/tiny";
  const auto config = load_config(directory);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto weights = load_weights(directory, *config);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->layers.size(), static_cast<std::size_t>(config->layer_count()));
}

TEST(ModelWeights, a_tied_head_is_the_embedding) {
  const TestCheckpoint checkpoint(kTied);
  const auto weights = load(checkpoint);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->head.data, weights->embedding.data);
}

TEST(ModelWeights, a_missing_head_is_tied_whatever_the_configuration_says) {
  const TestCheckpoint checkpoint(kFlat);
  checkpoint.edit_tensors([](EditableTensors& tensors) { tensors.erase("lm_head.weight"); });
  const auto weights = load(checkpoint);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->head.data, weights->embedding.data);
}

TEST(ModelWeights, a_stored_head_that_repeats_the_embedding_of_a_tied_model_is_counted_once) {
  const TestCheckpoint checkpoint(kTied);
  const std::int64_t tied_bytes = load(checkpoint)->bytes;
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  });
  EXPECT_EQ(load(checkpoint)->bytes, tied_bytes);
  EXPECT_EQ(load(checkpoint)->head.rows, 512);

  checkpoint.edit_tensors(
      [](EditableTensors& tensors) { tensors["lm_head.weight"].data[5] ^= std::byte{1}; });
  const auto different = load(checkpoint);
  EXPECT_NE(different->head.data, different->embedding.data);
  EXPECT_GT(different->bytes, tied_bytes);
}

TEST(ModelWeights, text_tensors_are_found_under_either_prefix) {
  for (const auto& [name, from, to] : {std::tuple{kNested, "model.language_model.", "model."},
                                       std::tuple{kFlat, "model.", "model.language_model."}}) {
    const TestCheckpoint checkpoint(name);
    checkpoint.edit_tensors([&](EditableTensors& tensors) {
      EditableTensors renamed;
      for (auto& [tensor_name, tensor] : tensors) {
        const bool text = tensor_name.starts_with(from) && !tensor_name.starts_with("model.visual");
        renamed[text ? to + tensor_name.substr(std::strlen(from)) : tensor_name] = tensor;
      }
      tensors = renamed;
    });
    EXPECT_EQ(refusal(checkpoint), "");
  }
}

TEST(ModelWeights, data_at_any_alignment_is_readable_as_whole_elements) {
  const TestCheckpoint checkpoint(kTied);
  const auto plain = load(checkpoint);
  EditableTensors stored;
  checkpoint.edit_tensors([&](EditableTensors& tensors) { stored = tensors; });
  checkpoint.write("model.safetensors", safetensors_text(stored, 1));
  const auto shifted = load(checkpoint);
  ASSERT_TRUE(shifted.ok()) << shifted.error().message;
  const auto address = reinterpret_cast<std::uintptr_t>(shifted->embedding.data);
  EXPECT_EQ(address % alignof(float), 0u);
  expect_same(shifted->embedding, stored.at("model.embed_tokens.weight"));
  EXPECT_EQ(shifted->final_norm_scale, plain->final_norm_scale);
}

TEST(ModelWeights, missing_tensors_are_named_with_the_shape_that_was_expected) {
  EXPECT_THAT(refusal_after(kFlat,
                            [](EditableTensors& tensors) {
                              tensors.erase("model.layers.2.mlp.up_proj.weight");
                            }),
              HasSubstr("tensor model.layers.2.mlp.up_proj.weight: missing; expected [96, 64]"));
}

TEST(ModelWeights, wrong_shapes_are_named_with_what_was_found_and_expected) {
  const std::string conv = "model.layers.0.linear_attn.conv1d.weight";
  // The order of axes of another framework's conversion.
  EXPECT_THAT(refusal_after(kFlat,
                            [&](EditableTensors& tensors) {
                              tensors[conv].shape = {1280, 4, 1};
                            }),
              HasSubstr("tensor " + conv + ": shape [1280, 4, 1]; expected [1280, 1, 4]"));
  EXPECT_THAT(refusal_after(kFlat,
                            [](EditableTensors& tensors) {
                              tensors["lm_head.weight"].shape = {64, 512};
                            }),
              HasSubstr("tensor lm_head.weight: shape [64, 512]; expected [512, 64]"));
}

TEST(ModelWeights, wrong_types_are_named_with_what_was_found_and_expected) {
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  EXPECT_THAT(refusal_after(kFlat,
                            [&](EditableTensors& tensors) {
                              tensors[name].dtype = "F8_E4M3";
                              tensors[name].data.resize(tensors[name].data.size() / 2);
                            }),
              HasSubstr("tensor " + name + ": dtype F8_E4M3; expected BF16, F16 or F32"));
}

TEST(ModelWeights, tensors_that_the_configuration_does_not_call_for_are_refused) {
  for (const std::string name :
       {"model.layers.0.mlp.down_proj.weight_scale_inv", "model.layers.4.input_layernorm.weight",
        "model.layers.3.self_attn.q_proj.bias", "model.layers.0.mlp.experts.gate_up_proj"}) {
    EXPECT_THAT(refusal_after(kFlat,
                              [&](EditableTensors& tensors) {
                                tensors[name] = {"BF16", {2}, std::vector<std::byte>(4)};
                              }),
                HasSubstr("tensor " + name + " (BF16 [2])"));
  }
}

TEST(ModelWeights, directories_without_weights_are_refused_with_the_names_looked_for) {
  const TestCheckpoint checkpoint(kTied);
  checkpoint.remove("model.safetensors");
  EXPECT_THAT(refusal(checkpoint),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("model.safetensors.index.json")));
}

class ShardIndex : public testing::Test {
 protected:
  void edit_index(const std::function<void(nlohmann::json&)>& edit) const {
    auto index = nlohmann::json::parse(checkpoint_.read("model.safetensors.index.json"));
    edit(index);
    checkpoint_.write("model.safetensors.index.json", index.dump());
  }

  TestCheckpoint checkpoint_{kFlat};
};

TEST_F(ShardIndex, names_the_shard_that_is_missing) {
  checkpoint_.remove("model-00002-of-00002.safetensors");
  EXPECT_THAT(refusal(checkpoint_),
              AllOf(HasSubstr("shard model-00002-of-00002.safetensors"), HasSubstr("is missing")));
}

TEST_F(ShardIndex, names_the_tensor_that_its_shard_does_not_hold) {
  edit_index([](auto& index) {
    index["weight_map"]["ghost.weight"] = "model-00001-of-00002.safetensors";
  });
  EXPECT_THAT(refusal(checkpoint_),
              HasSubstr("tensor ghost.weight is not in model-00001-of-00002.safetensors"));
}

TEST_F(ShardIndex, names_the_tensor_that_it_puts_in_the_wrong_shard) {
  edit_index([](auto& index) {
    auto& shard = index["weight_map"]["lm_head.weight"];
    shard = shard == "model-00001-of-00002.safetensors" ? "model-00002-of-00002.safetensors"
                                                        : "model-00001-of-00002.safetensors";
  });
  EXPECT_THAT(refusal(checkpoint_), HasSubstr("tensor lm_head.weight is not in"));
}

TEST_F(ShardIndex, does_not_lead_out_of_its_directory) {
  for (const char* shard : {"../model.safetensors", "/etc/passwd", "..", ""}) {
    edit_index([&](auto& index) { index["weight_map"]["lm_head.weight"] = shard; });
    EXPECT_THAT(refusal(checkpoint_), AllOf(HasSubstr("weight_map.lm_head.weight"),
                                            HasSubstr("the name of a file in the directory")));
  }
}

TEST_F(ShardIndex, of_the_wrong_form_is_refused_by_name) {
  edit_index([](auto& index) { index["weight_map"]["lm_head.weight"] = 1; });
  EXPECT_THAT(refusal(checkpoint_), HasSubstr("weight_map.lm_head.weight: 1"));
  edit_index([](auto& index) { index["weight_map"] = {1}; });
  EXPECT_THAT(refusal(checkpoint_), HasSubstr("index.json: weight_map: a list of 1"));
  edit_index([](auto& index) { index.erase("weight_map"); });
  EXPECT_THAT(refusal(checkpoint_), HasSubstr("weight_map"));
}

TEST_F(ShardIndex, two_shards_with_one_tensor_are_refused) {
  std::filesystem::copy(checkpoint_.path() / "model-00001-of-00002.safetensors",
                        checkpoint_.path() / "again.safetensors");
  edit_index([](auto& index) {
    for (auto& [name, shard] : index["weight_map"].items()) {
      if (shard == "model-00001-of-00002.safetensors") {
        shard = "again.safetensors";
        break;
      }
    }
  });
  EXPECT_THAT(refusal(checkpoint_), HasSubstr("is in both"));
}

}  // namespace
}  // namespace replayssm
