// The golden files see the mistakes that are easily made with this family: for each, a checkpoint
// is changed so that reading it correctly gives what the mistake would give with the original, and
// the logits must be far from the golden ones. Without this, agreement with them could be luck.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "e2e/parity_golden.h"
#include "e2e/parity_sequence.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

constexpr const char* kRatio3 = "ratio3_bfloat16_flat_untied";
constexpr const char* kYarn = "ratio1_bfloat16_yarn_nested_tied";
constexpr const char* kKimi = "kimi_bfloat16_untied";
constexpr const char* kKda = "kda_hybrid_bfloat16_tied";

// A thousand times what parity allows.
constexpr double kFar = 1e-2;
constexpr int kHeadDim = 256;

double distance_from_golden(const char* name, const TestCheckpoint& checkpoint) {
  const Golden golden(name);
  ModelOptions options;
  options.max_step_tokens = 128;
  ParitySequence sequence(checkpoint.path(), options);
  const auto logits = sequence.prefill(golden.ids("prompt.1.ids"));
  return largest_difference(
      logits, columns_of(golden.floats("float32.prompt.1.logits"), sequence.config().vocab_rows,
                         sequence.config().vocab_size));
}

double distance_after_tensors(const char* name, const std::function<void(EditableTensors&)>& edit) {
  const TestCheckpoint checkpoint(name);
  checkpoint.edit_tensors(edit);
  return distance_from_golden(name, checkpoint);
}

// Adds `amount` to every value of the tensors whose name ends so.
std::function<void(EditableTensors&)> adding(const std::string& ending, float amount) {
  return [=](EditableTensors& tensors) {
    int changed = 0;
    for (auto& [name, tensor] : tensors) {
      if (!name.ends_with(ending)) continue;
      auto values = values_of(tensor);
      for (float& x : values) x += amount;
      set_values(tensor, values);
      ++changed;
    }
    ASSERT_GT(changed, 0) << ending;
  };
}

TEST(ParityTraps, an_unchanged_copy_is_close) {
  EXPECT_LT(distance_after_tensors(kRatio3, [](EditableTensors&) {}), 1e-5);
  EXPECT_LT(distance_after_tensors(kYarn, [](EditableTensors&) {}), 1e-5);
  EXPECT_LT(distance_after_tensors(kKimi, [](EditableTensors&) {}), 1e-5);
  EXPECT_LT(distance_after_tensors(kKda, [](EditableTensors&) {}), 1e-5);
}

TEST(ParityTraps, zero_centred_norms_scale_by_one_plus_their_weight) {
  for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight",
                           "q_norm.weight", "k_norm.weight", "model.norm.weight"}) {
    EXPECT_GT(distance_after_tensors(kRatio3, adding(norm, -1)), kFar) << norm;
  }
}

TEST(ParityTraps, the_norm_of_linear_layers_scales_by_its_weight_alone) {
  EXPECT_GT(distance_after_tensors(kRatio3, adding("linear_attn.norm.weight", 1)), kFar);
}

TEST(ParityTraps, the_norms_of_kimi_linear_scale_by_their_weight_alone) {
  for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight",
                           "o_norm.weight", "model.norm.weight"}) {
    EXPECT_GT(distance_after_tensors(kKimi, adding(norm, 1)), kFar) << norm;
  }
  EXPECT_GT(distance_after_tensors(kKda, adding("o_norm.weight", 1)), kFar);
}

TEST(ParityTraps, every_tensor_of_a_kda_layer_has_its_own_place) {
  const std::string layer = "model.layers.1.self_attn.";
  for (const auto& [one, other] : {std::pair{"q_conv1d", "k_conv1d"},
                                   {"k_conv1d", "v_conv1d"},
                                   {"q_proj", "k_proj"},
                                   {"k_proj", "v_proj"},
                                   {"f_a_proj", "g_a_proj"},
                                   {"f_b_proj", "g_b_proj"}}) {
    const auto exchange = [&](EditableTensors& tensors) {
      std::swap(tensors.at(layer + one + ".weight"), tensors.at(layer + other + ".weight"));
    };
    EXPECT_GT(distance_after_tensors(kKimi, exchange), kFar) << one << ' ' << other;
  }
}

TEST(ParityTraps, a_kda_gate_belongs_to_its_head_and_channel) {
  const auto rotated = [](const std::string& ending, std::size_t by) {
    return [=](EditableTensors& tensors) {
      auto& tensor = tensors.at("model.layers.0.self_attn." + ending);
      auto values = values_of(tensor);
      std::rotate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(by), values.end());
      set_values(tensor, values);
    };
  };
  EXPECT_GT(distance_after_tensors(kKimi, rotated("A_log", 1)), kFar);
  EXPECT_GT(distance_after_tensors(kKimi, rotated("dt_bias", 1)), kFar);
  EXPECT_GT(distance_after_tensors(kKimi, rotated("dt_bias", 128)), kFar);
}

TEST(ParityTraps, queries_and_gates_alternate_by_head) {
  constexpr std::size_t kHeads = 2;
  EXPECT_GT(distance_after_tensors(
                kRatio3,
                [](EditableTensors& tensors) {
                  // As if the file held all queries, then all gates.
                  std::vector<std::size_t> order;
                  for (std::size_t part = 0; part < 2; ++part) {
                    for (std::size_t head = 0; head < kHeads; ++head) {
                      for (std::size_t d = 0; d < kHeadDim; ++d) {
                        order.push_back((head * 2 + part) * kHeadDim + d);
                      }
                    }
                  }
                  permute_rows(tensors.at("model.layers.3.self_attn.q_proj.weight"), order);
                }),
            kFar);
}

TEST(ParityTraps, the_last_convolution_tap_meets_the_current_token) {
  EXPECT_GT(distance_after_tensors(kRatio3,
                                   [](EditableTensors& tensors) {
                                     auto& conv =
                                         tensors.at("model.layers.0.linear_attn.conv1d.weight");
                                     auto taps = values_of(conv);
                                     for (auto at = taps.begin(); at != taps.end(); at += 4) {
                                       std::reverse(at, at + 4);
                                     }
                                     set_values(conv, taps);
                                   }),
            kFar);
}

TEST(ParityTraps, half_of_the_head_is_not_a_quarter_of_it) {
  const TestCheckpoint checkpoint(kRatio3);
  checkpoint.edit_config([](auto& c) { c["rope_parameters"]["partial_rotary_factor"] = 0.5; });
  EXPECT_GT(distance_from_golden(kRatio3, checkpoint), kFar);
}

TEST(ParityTraps, yarn_is_not_plain_rope) {
  const TestCheckpoint plain(kYarn);
  plain.edit_config([](auto& c) { c["text_config"]["rope_parameters"]["rope_type"] = "default"; });
  EXPECT_GT(distance_from_golden(kYarn, plain), kFar);

  const TestCheckpoint unscaled(kYarn);
  unscaled.edit_config(
      [](auto& c) { c["text_config"]["rope_parameters"]["attention_factor"] = 1.0; });
  EXPECT_GT(distance_from_golden(kYarn, unscaled), kFar);

  const TestCheckpoint untruncated(kYarn);
  untruncated.edit_config([](auto& c) { c["text_config"]["rope_parameters"]["truncate"] = false; });
  EXPECT_GT(distance_from_golden(kYarn, untruncated), 1e-4);
}

}  // namespace
}  // namespace replayssm
