// Weights in float8 blocks: every code, ragged blocks, and what is refused. Whether the weights
// that come out are those of the checkpoint is decided by the parity tests over float8_ratio2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/float8.h"
#include "model/weights.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kCheckpoint = "float8_ratio2_bfloat16_untied";
const std::string kModule = "model.layers.0.mlp.gate_proj";  // [200, 160]
const std::string kWeight = kModule + ".weight";
const std::string kScale = kModule + ".weight_scale_inv";  // [2, 2]

// From the definition, without bit operations on floats.
double exact_e4m3(int code) {
  const int exponent = code / 8 % 16;
  const int fraction = code % 8;
  const double magnitude = exponent == 0 ? fraction / 8.0 * std::exp2(-6)
                                         : (1 + fraction / 8.0) * std::exp2(exponent - 7);
  return code >= 128 ? -magnitude : magnitude;
}

TEST(Float8, every_code_has_its_value) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if (code % 128 == 127) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, exact_e4m3(code)) << code;
      EXPECT_EQ(std::signbit(value), code >= 128) << code;
    }
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
}

// Against float64. The product is rounded to 24 bits, by up to 2^-24 of it, and then to 8: half a
// step of bf16 is up to 2^-8 of the value.
TEST(Float8, blocks_are_scaled_by_their_own_scale_up_to_ragged_edges) {
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                   {127, 129},
                                   {128, 128},
                                   {129, 127},
                                   {257, 300},
                                   {256, 256}}) {
    std::vector<std::byte> codes(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::size_t code = i * 131 % 256;
      codes[i] = static_cast<std::byte>(code % 128 == 127 ? 0 : code);
    }
    const std::int64_t columns = float8_blocks(cols);
    std::vector<float> scales(static_cast<std::size_t>(float8_blocks(rows) * columns));
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(i + 1);
    std::vector<bf16> out(codes.size());
    ASSERT_TRUE(dequantise_float8(codes, rows, cols, scales, out.data()).ok());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto at = static_cast<std::size_t>(r * cols + c);
        const double exact = exact_e4m3(std::to_integer<int>(codes[at])) *
                             scales[static_cast<std::size_t>(r / 128 * columns + c / 128)];
        ASSERT_NEAR(to_float(out[at]), exact, std::abs(exact) * (0x1p-8 + 0x1p-24))
            << r << ' ' << c << " of " << rows << " x " << cols;
      }
    }
  }
}

TEST(Float8, what_bfloat16_cannot_hold_is_refused_with_its_place) {
  const auto refusal = [](int code, float scale, std::size_t block) {
    std::vector<std::byte> codes(130 * 140, std::byte{0x38});
    codes[129 * 140 + 133] = static_cast<std::byte>(code);
    std::vector<float> scales(4, 1.0f);
    scales[block] = scale;
    std::vector<bf16> out(codes.size());
    const Status status = dequantise_float8(codes, 130, 140, scales, out.data());
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal(0x7e, 2.0f, 3), "");
  EXPECT_EQ(refusal(0x7e, 0.0f, 3), "");
  EXPECT_THAT(refusal(0x7f, 1.0f, 3), AllOf(HasSubstr("element [129, 133]"), HasSubstr("nan")));
  EXPECT_THAT(refusal(0xff, 1.0f, 3), AllOf(HasSubstr("element [129, 133]"), HasSubstr("nan")));
  EXPECT_THAT(refusal(0x7e, 1e37f, 3), HasSubstr("448 times the scale 1e+37"));
  EXPECT_THAT(refusal(0x38, -1.0f, 1), HasSubstr("scale of block [0, 1]: -1 is not accepted"));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(0x38, kNan, 2), HasSubstr("scale of block [1, 0]: nan is not accepted"));
  EXPECT_THAT(refusal(0x38, kInfinite, 2), HasSubstr("scale of block [1, 0]: inf is not accepted"));
}

TEST(Quantisation, excluded_modules_are_found_under_any_prefix) {
  Quantisation quantisation;
  quantisation.excluded = {"model.language_model.layers.3.linear_attn.in_proj_a",
                           "language_model.model.layers.4", "lm_head", "linear_attn.in_proj_b"};
  for (const char* module :
       {"model.layers.3.linear_attn.in_proj_a", "model.language_model.layers.4.mlp.up_proj",
        "lm_head", "model.layers.7.linear_attn.in_proj_b", "model.layers.4"}) {
    EXPECT_TRUE(quantisation.excludes(module)) << module;
  }
  for (const char* module :
       {"model.layers.3.linear_attn.in_proj_aa", "model.layers.40.mlp.up_proj", "model.lm_heads",
        "model.layers.3.linear_attn", "model.layers.7.xlinear_attn.in_proj_b", "head"}) {
    EXPECT_FALSE(quantisation.excludes(module)) << module;
  }
}

std::string refusal(const TestCheckpoint& checkpoint) {
  const auto config = load_config(checkpoint.path());
  if (!config) return config.error().message;
  const auto weights = load_weights(checkpoint.path(), *config);
  return weights ? "" : weights.error().message;
}

std::string refusal_after(const std::function<void(EditableTensors&)>& edit) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_tensors(edit);
  return refusal(checkpoint);
}

TEST(Float8Checkpoint, weights_are_bfloat16_and_counted_as_they_are_used) {
  const TestCheckpoint checkpoint(kCheckpoint);
  std::int64_t used = 0;
  EditableTensor codes, scales;
  checkpoint.edit_tensors([&](EditableTensors& tensors) {
    codes = tensors.at(kWeight);
    scales = tensors.at(kScale);
    for (const auto& [name, tensor] : tensors) {
      if (name.ends_with("_scale_inv")) continue;
      used += static_cast<std::int64_t>(tensor.data.size()) * (tensor.dtype == "F8_E4M3" ? 2 : 1);
    }
  });
  ASSERT_EQ(codes.dtype, "F8_E4M3");
  const auto config = load_config(checkpoint.path());
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto weights = load_weights(checkpoint.path(), *config);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->bytes, used);

  const WeightMatrix& gate = weights->layers[0].mlp.gate;
  EXPECT_EQ(gate.type, DType::bf16);
  const std::vector<float> scale = values_of(scales);
  const auto* values = static_cast<const bf16*>(gate.data);
  for (const auto& [r, c] : {std::pair{0, 0}, {127, 128}, {128, 127}, {199, 159}}) {
    const auto at = static_cast<std::size_t>(r * 160 + c);
    const float code = e4m3_to_float(std::to_integer<std::uint8_t>(codes.data[at]));
    const auto block = static_cast<std::size_t>(r / 128 * 2 + c / 128);
    EXPECT_EQ(to_float(values[at]), round_to_bf16(code * scale[block])) << r << ' ' << c;
  }
}

TEST(Float8Checkpoint, weights_that_are_kept_have_codes_and_scales_as_stored) {
  const TestCheckpoint checkpoint(kCheckpoint);
  EditableTensor codes, scales;
  checkpoint.edit_tensors([&](EditableTensors& tensors) {
    codes = tensors.at(kWeight);
    scales = tensors.at(kScale);
  });
  const auto config = load_config(checkpoint.path());
  const auto rounded = load_weights(checkpoint.path(), *config);
  const auto kept = load_weights(checkpoint.path(), *config, false, Float8::kept);
  ASSERT_TRUE(rounded.ok() && kept.ok());
  const WeightMatrix& gate = kept->layers[0].mlp.gate;
  ASSERT_TRUE(gate.float8);
  EXPECT_EQ(gate.bytes(), static_cast<std::int64_t>(codes.data.size()));
  EXPECT_EQ(std::memcmp(gate.data, codes.data.data(), codes.data.size()), 0);
  const std::vector<float> stored = values_of(scales);
  EXPECT_EQ(std::vector<float>(gate.block_scales, gate.block_scales + stored.size()), stored);

  // What is read row by row, or excluded, is not float8.
  EXPECT_FALSE(kept->embedding.float8);
  EXPECT_FALSE(kept->head.float8);
  EXPECT_FALSE(std::get<GdnWeights>(kept->layers[0].mixer).a.float8);
  EXPECT_LT(kept->bytes, rounded->bytes);
}

TEST(Float8Checkpoint, kept_weights_are_checked_like_the_others) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_tensors(
      [](EditableTensors& tensors) { tensors.at(kWeight).data[5] = std::byte{0x7f}; });
  const auto config = load_config(checkpoint.path());
  const auto rounded = load_weights(checkpoint.path(), *config);
  const auto kept = load_weights(checkpoint.path(), *config, false, Float8::kept);
  ASSERT_FALSE(rounded.ok() || kept.ok());
  EXPECT_EQ(kept.error().message, rounded.error().message);
}

TEST(Float8Checkpoint, random_weights_without_data_are_float8_where_the_configuration_says_so) {
  const TestCheckpoint checkpoint(kCheckpoint);
  const auto config = load_config(checkpoint.path());
  const auto made = random_weights(*config, false, DummyMatrices::shapes_only, Float8::kept);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->layers[0].mlp.gate.float8);
  EXPECT_FALSE(std::get<GdnWeights>(made->layers[0].mixer).a.float8);
  EXPECT_FALSE(made->embedding.float8);
  const auto rounded = random_weights(*config, false, DummyMatrices::shapes_only);
  EXPECT_FALSE(rounded->layers[0].mlp.gate.float8);
}

TEST(Float8Checkpoint, scales_in_float32_give_the_same_weights) {
  const TestCheckpoint checkpoint(kCheckpoint);
  const auto config = load_config(checkpoint.path());
  const auto narrow = load_weights(checkpoint.path(), *config);
  const TestCheckpoint other(kCheckpoint);
  other.edit_tensors([](EditableTensors& tensors) {
    const auto values = values_of(tensors.at(kScale));
    tensors.at(kScale).dtype = "F32";
    set_values(tensors.at(kScale), values);
  });
  const auto wide = load_weights(other.path(), *config);
  ASSERT_TRUE(narrow.ok() && wide.ok());
  const WeightMatrix& a = narrow->layers[0].mlp.gate;
  const WeightMatrix& b = wide->layers[0].mlp.gate;
  EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes())), 0);
}

TEST(Float8Checkpoint, a_weight_without_its_scale_is_refused) {
  EXPECT_THAT(refusal_after([](EditableTensors& tensors) { tensors.erase(kScale); }),
              HasSubstr("tensor " + kScale + ": missing; expected [2, 2]"));
}

TEST(Float8Checkpoint, a_scale_of_another_shape_or_type_is_refused) {
  EXPECT_THAT(refusal_after([](EditableTensors& tensors) {
                tensors.at(kScale).shape = {4, 1};
              }),
              HasSubstr("tensor " + kScale + ": shape [4, 1]; expected [2, 2]"));
  EXPECT_THAT(refusal_after([](EditableTensors& tensors) { tensors.at(kScale).dtype = "F16"; }),
              HasSubstr("tensor " + kScale + ": dtype F16; expected BF16 or F32"));
}

TEST(Float8Checkpoint, a_scale_beside_a_weight_that_needs_none_is_refused) {
  EXPECT_THAT(refusal_after([](EditableTensors& tensors) {
                tensors.at(kWeight) = {"BF16", {200, 160}, std::vector<std::byte>(200 * 160 * 2)};
              }),
              HasSubstr("tensor " + kWeight + ": dtype BF16 beside " + kScale));
}

TEST(Float8Checkpoint, a_weight_that_is_not_a_number_is_refused_with_its_place) {
  EXPECT_THAT(refusal_after([](EditableTensors& tensors) {
                tensors.at(kWeight).data[161] = std::byte{0xff};
              }),
              HasSubstr("tensor " + kWeight + ": element [1, 1]"));
}

TEST(Float8Checkpoint, a_weight_that_the_configuration_excludes_is_refused) {
  for (const std::string& listed :
       {kModule, std::string("language_model.model.layers.0.mlp"), std::string("mlp.gate_proj")}) {
    const TestCheckpoint checkpoint(kCheckpoint);
    checkpoint.edit_config(
        [&](auto& c) { c["quantization_config"]["modules_to_not_convert"].push_back(listed); });
    EXPECT_THAT(refusal(checkpoint),
                AllOf(HasSubstr("tensor model.layers.0.mlp.gate_proj.weight: dtype F8_E4M3"),
                      HasSubstr("modules_to_not_convert")))
        << listed;
  }
}

TEST(Float8Checkpoint, float8_weights_without_a_quantization_config_are_refused) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_config([](auto& c) { c.erase("quantization_config"); });
  EXPECT_THAT(refusal(checkpoint), HasSubstr("dtype F8_E4M3; expected BF16, F16 or F32"));
}

TEST(Float8Checkpoint, vectors_stay_in_wider_types) {
  const std::string norm = "model.norm.weight";
  EXPECT_THAT(refusal_after([&](EditableTensors& tensors) {
                tensors.at(norm) = {"F8_E4M3", {160}, std::vector<std::byte>(160)};
              }),
              HasSubstr("tensor " + norm + ": dtype F8_E4M3; expected BF16, F16 or F32"));
}

}  // namespace
}  // namespace replayssm
