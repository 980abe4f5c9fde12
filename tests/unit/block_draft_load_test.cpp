// Drafters as they are published: where fields may be, how tensors may be called, and what is
// refused because it would draft badly without a word.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "block_drafter.h"
#include "model/block_draft_config.h"
#include "model/block_draft_weights.h"
#include "source_dir.h"

namespace replayssm {
namespace {

using nlohmann::json;

const ModelConfig& target() {
  static const ModelConfig config =
      load_config(source_dir() / "tests/data/model/ratio1_float32_flat_tied").value();
  return config;
}

using Edit = std::function<void(json&)>;
using EditTensors = std::function<void(EditableTensors&)>;

BlockDraftConfig config_with(const DrafterKind& kind, const Edit& edit) {
  const TestDrafter drafter(kind);
  drafter.files().edit_config(edit);
  auto config = load_block_draft_config(drafter.path(), target());
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : BlockDraftConfig{};
}

std::string refusal(const DrafterKind& kind, const Edit& edit) {
  const TestDrafter drafter(kind);
  drafter.files().edit_config(edit);
  const auto config = load_block_draft_config(drafter.path(), target());
  return config.ok() ? "accepted" : config.error().message;
}

Result<BlockDraftWeights> load_with(
    const DrafterKind& kind, const EditTensors& edit, const Edit& edit_config = [](json&) {}) {
  const TestDrafter drafter(kind);
  drafter.files().edit_config(edit_config);
  drafter.files().edit_tensors(edit);
  const auto config = load_block_draft_config(drafter.path(), target());
  if (!config) return config.error();
  return load_block_draft_weights(drafter.path(), *config);
}

// The file's part of a message that names it.
std::string weights_refusal(const DrafterKind& kind, const EditTensors& edit) {
  const auto weights = load_with(kind, edit);
  if (weights.ok()) return "accepted";
  const std::string& message = weights.error().message;
  const auto tensor = message.find("tensor ");
  return tensor == std::string::npos ? message : message.substr(tensor);
}

const Edit kNoEdit = [](json&) {};

TEST(BlockDraftConfig, EveryClassSaysWhichRowsPredict) {
  const auto drafts = [](const DrafterKind& kind, const Edit& edit) {
    const BlockDraftConfig config = config_with(kind, edit);
    return std::pair(config.from_anchor, config.drafts());
  };
  const std::pair after_anchor(false, 7);
  EXPECT_EQ(drafts(kDFlash, kNoEdit), after_anchor);
  EXPECT_EQ(drafts(kDFlash2, kNoEdit), after_anchor);
  EXPECT_EQ(drafts(kDSparkVanilla, kNoEdit), std::pair(true, 7));
  // The class of DSpark without its heads still predicts from the anchor's row.
  EXPECT_EQ(drafts(kDSparkPlain, kNoEdit), std::pair(true, 7));
  const auto specforge = [](json& config) {
    config["architectures"] = {"DSparkDraftModel"};
    config["dflash_config"]["projector_type"] = "dspark";
  };
  EXPECT_EQ(drafts(kDFlash, specforge), std::pair(true, 8));
  const auto speculators = [](const char* type, const char* field, bool value) {
    return [=](json& config) {
      config.erase("architectures");
      config["speculators_model_type"] = type;
      if (field != nullptr) config[field] = value;
    };
  };
  EXPECT_EQ(drafts(kDFlash, speculators("dflash", nullptr, false)), after_anchor);
  EXPECT_EQ(drafts(kDFlash, speculators("dspark", nullptr, false)), std::pair(true, 8));
  EXPECT_EQ(drafts(kDFlash, speculators("dflash", "sample_from_anchor", true)), std::pair(true, 8));
  EXPECT_EQ(drafts(kDFlash, speculators("dspark", "sample_from_anchor", false)), after_anchor);
}

TEST(BlockDraftConfig, FieldsAreFoundWhereverADialectHasThem) {
  const auto moved = [](const char* from, const char* to_level, const char* to) {
    return [=](json& config) {
      const json value = config[from];
      config.erase(from);
      (to_level == nullptr ? config : config[to_level])[to] = value;
    };
  };
  struct Case {
    const char* from;
    const char* level;
    const char* to;
  };
  const BlockDraftConfig plain = config_with(kDSparkGated, kNoEdit);
  for (const Case& each : {Case{"block_size", nullptr, "dspark_block_size"},
                           {"block_size", "dflash_config", "block_size"},
                           {"target_layer_ids", nullptr, "dspark_target_layer_ids"},
                           {"target_layer_ids", nullptr, "aux_hidden_state_layer_ids"},
                           {"target_layer_ids", "dflash_config", "target_layer_ids"},
                           {"mask_token_id", nullptr, "dspark_noise_token_id"},
                           {"mask_token_id", "dflash_config", "mask_token_id"},
                           {"markov_rank", nullptr, "dspark_markov_rank"},
                           {"markov_rank", "dspark_config", "markov_rank"},
                           {"markov_rank", "dflash_config", "markov_rank"},
                           {"markov_head_type", "dspark_config", "markov_head_type"},
                           {"markov_head_type", "dflash_config", "markov_head_type"},
                           {"enable_confidence_head", "dflash_config", "enable_confidence_head"}}) {
    const BlockDraftConfig found = config_with(kDSparkGated, moved(each.from, each.level, each.to));
    EXPECT_EQ(found.block, plain.block) << each.to;
    EXPECT_EQ(found.target_layers, plain.target_layers) << each.to;
    EXPECT_EQ(found.mask, plain.mask) << each.to;
    EXPECT_EQ(found.markov_rank, plain.markov_rank) << each.to;
    EXPECT_EQ(found.markov, plain.markov) << each.to;
    EXPECT_EQ(found.confidence, plain.confidence) << each.to;
  }
  const BlockDraftConfig nested = config_with(kDFlash, [](json& config) {
    json layers = config;
    for (const char* key : {"architectures", "dflash_config", "num_target_layers"}) {
      layers.erase(key);
    }
    config = {{"speculators_model_type", "dflash"},
              {"dflash_config", config["dflash_config"]},
              {"transformer_layer_config", layers}};
  });
  EXPECT_EQ(nested.decoder.attention.heads, 4);
  EXPECT_EQ(nested.decoder.rope.theta, 50000.0);
}

TEST(BlockDraftConfig, PlacesThatDisagreeAreRefused) {
  EXPECT_EQ(refusal(kDFlash, [](json& config) { config["block_size"] = 4; }),
            "config.json: block_size: 4 is not accepted; expected the value of config.json: "
            "dflash_config.block_size");
}

TEST(BlockDraftConfig, AbsentLayersAreSpreadOverTheTarget) {
  ModelConfig deep = target();
  deep.layers.assign(36, LayerKind::linear);
  const auto layers = [&](int draft_layers) {
    const TestDrafter drafter(kDFlash);
    drafter.files().edit_config([&](json& config) {
      config["num_target_layers"] = 36;
      config["num_hidden_layers"] = draft_layers;
      config.erase("layer_types");
      config["dflash_config"].erase("target_layer_ids");
    });
    return load_block_draft_config(drafter.path(), deep).value().target_layers;
  };
  EXPECT_EQ(layers(5), (std::vector{1, 9, 17, 25, 33}));
  EXPECT_EQ(layers(2), (std::vector{1, 33}));
  EXPECT_EQ(layers(1), (std::vector{18}));
}

TEST(BlockDraftConfig, AttentionSeesWhatTheFileSays) {
  const auto kinds = [](const Edit& edit) { return config_with(kDFlashSliding, edit).attention; };
  auto found = kinds(kNoEdit);
  EXPECT_TRUE(found[0].causal);
  EXPECT_EQ(found[0].window, 6);
  EXPECT_FALSE(found[1].causal);
  EXPECT_EQ(found[1].window, 0);
  for (const bool causal : {false, true}) {
    found = kinds([&](json& config) { config["is_causal"] = causal; });
    EXPECT_EQ(found[0].causal, causal);
    EXPECT_EQ(found[1].causal, causal);
  }
  found = kinds([](json& config) { config["sliding_window_non_causal"] = true; });
  EXPECT_FALSE(found[0].causal);
}

TEST(BlockDraftConfig, ConfidenceIsDecidedByFieldThenByTraining) {
  const auto confidence = [](const Edit& edit) {
    return config_with(kDSparkVanilla, edit).confidence;
  };
  EXPECT_EQ(confidence(kNoEdit), true);
  EXPECT_EQ(confidence([](json& c) { c.erase("enable_confidence_head"); }), std::nullopt);
  EXPECT_EQ(confidence([](json& c) {
              c.erase("enable_confidence_head");
              c["confidence_head_alpha"] = 0.5;
            }),
            true);
}

TEST(BlockDraftConfig, WhatWouldDraftBadlyIsRefusedByName) {
  const auto set = [](const char* key, const json& value) {
    return [=](json& config) { config[key] = value; };
  };
  const std::string file = "config.json: ";
  EXPECT_EQ(refusal(kDFlash, set("architectures", json{"LlamaForCausalLMEagle3"})),
            file +
                "architectures: LlamaForCausalLMEagle3 is not accepted; expected "
                "DFlashDraftModel, DFlash2DraftModel, Qwen3DSparkModel or DSparkDraftModel; "
                "EAGLE-3 drafters are not built");
  EXPECT_EQ(refusal(kDFlash, set("speculators_model_type", "eagle3")),
            file +
                "speculators_model_type: \"eagle3\" is not accepted; expected dflash or dspark; "
                "EAGLE-3 and other drafters are not built");
  EXPECT_EQ(refusal(kDFlash, set("architectures", json{"Qwen3ForCausalLM"})),
            file +
                "architectures: Qwen3ForCausalLM is not accepted; expected DFlashDraftModel, "
                "DFlash2DraftModel, Qwen3DSparkModel or DSparkDraftModel");
  EXPECT_EQ(refusal(kDFlash, set("markov_rank", 8)),
            file + "markov_rank: 8 is not accepted; expected 0 with DFlashDraftModel");
  EXPECT_EQ(refusal(kDSparkVanilla, set("target_layer_ids", json{1, 3})),
            file + "target_layer_ids[1]: 3 is not accepted; expected an integer from -1 to 2");
  EXPECT_EQ(
      refusal(kDSparkVanilla, set("target_layer_ids", json{2, 1})),
      file + "target_layer_ids: 2, 1 is not accepted; expected ascending layers from -1 to 2");
  EXPECT_EQ(refusal(kDSparkVanilla, set("mask_token_id", 512)),
            file + "mask_token_id: 512 is not accepted; expected an integer from 0 to 511");
  EXPECT_EQ(refusal(kDSparkVanilla,
                    [](json& config) {
                      config.erase("mask_token_id");
                      config["mask_token"] = "<mask>";
                    }),
            file + "mask_token: a name alone; expected mask_token_id beside it");
  EXPECT_EQ(refusal(kDFlash, set("hidden_size", 128)),
            file + "hidden_size: 128 is not accepted; expected the target's 64");
  EXPECT_EQ(refusal(kDFlash, set("vocab_size", 1000)),
            file + "vocab_size: 1000 is not accepted; expected the target's vocabulary of 512");
  EXPECT_EQ(
      refusal(kDFlash, set("draft_vocab_size", 256)),
      file + "draft_vocab_size: 256 is not accepted; expected the target's vocabulary of 512");
  EXPECT_EQ(refusal(kDFlash, set("num_target_layers", 36)),
            file + "num_target_layers: 36 is not accepted; expected the target's 4");
  EXPECT_EQ(refusal(kDFlash, set("partial_rotary_factor", 0.25)),
            file +
                "partial_rotary_factor: 0.25 is not accepted; expected 1 or absent: drafters "
                "rotate whole heads");
  for (const char* variant : {"aux_hidden_norms", "norm_before_fc", "g_proj", "attn_output_gate"}) {
    EXPECT_EQ(refusal(kDFlash, set(variant, true)),
              file + variant + ": true is not accepted; expected false: this variant is not built");
  }
  EXPECT_EQ(refusal(kDFlash, set("logits_scaling", 8.0)),
            file + "logits_scaling: 8.0 is not accepted; expected 1: scaled heads are not built");
  EXPECT_EQ(
      refusal(kDFlash2, [](json& config) { config["dflash_config"].erase("selector_top_k"); }),
      file + "selector_top_k: missing; expected selector_rank and selector_top_k, or neither");
  EXPECT_EQ(refusal(kDFlash2, [](json& config) { config["dflash_config"]["conv_group_size"] = 7; }),
            file + "conv_group_size: 7 is not accepted; expected a divisor of hidden_size (64)");
  EXPECT_EQ(refusal(kDFlash, [](json& config) { config["dflash_config"]["block_size"] = 1; }),
            file + "block_size: 1 is not accepted; expected at least 2: the first row drafts not");
  EXPECT_EQ(refusal(kDSparkVanilla, set("markov_head_type", "lstm")),
            file + "markov_head_type: lstm is not accepted; expected vanilla, gated or rnn");
  EXPECT_EQ(refusal(kDSparkVanilla, set("confidence_temperatures", json{1, 2})),
            file +
                "confidence_temperatures: a list of 2 is not accepted; expected 7 numbers above "
                "0, one for each draft");
}

TEST(BlockDraftWeights, EveryKindLoads) {
  for (const DrafterKind& kind : kDrafterKinds) {
    const auto weights = load_with(kind, [](EditableTensors&) {});
    ASSERT_TRUE(weights.ok()) << kind.name << ": " << weights.error().message;
    EXPECT_EQ(weights->layers.size(), 2u);
    EXPECT_EQ(weights->selector.has_value(), kind.dflash2);
    EXPECT_EQ(weights->markov.has_value(), kind.markov != nullptr);
    EXPECT_EQ(weights->confidence.has_value(), kind.confidence);
  }
}

TEST(BlockDraftWeights, NormsAreTheirScale) {
  const auto weights = load_with(kDFlash, [](EditableTensors& tensors) {
    set_values(tensors["layers.0.input_layernorm.weight"], std::vector<float>(64, 0.25F));
  });
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(weights->layers[0].mixer_norm_scale.front(), 0.25F);
}

void rename(EditableTensors& tensors, const std::string& from, const std::string& to) {
  auto node = tensors.extract(from);
  ASSERT_FALSE(node.empty()) << from;
  node.key() = to;
  tensors.insert(std::move(node));
}

TEST(BlockDraftWeights, NamesOfOtherWritersAreKnown) {
  EXPECT_TRUE(load_with(kDSparkRnn, [](EditableTensors& tensors) {
                const EditableTensors copy = tensors;
                for (const auto& [name, tensor] : copy) rename(tensors, name, "model." + name);
              }).ok());
  EXPECT_TRUE(load_with(kDSparkRnn, [](EditableTensors& tensors) {
                rename(tensors, "fc.weight", "encoder.fc.weight");
                rename(tensors, "hidden_norm.weight", "encoder.output_norm_enc.weight");
                const EditableTensors copy = tensors;
                for (const auto& [name, tensor] : copy) {
                  if (name.starts_with("markov_head.") || name.starts_with("confidence_head.")) {
                    rename(tensors, name, "logit_head." + name);
                  }
                }
              }).ok());
}

TEST(BlockDraftWeights, CopiesOfTheTargetsTensorsAreLeftOutIfTheyFit) {
  const auto with_copy = [](const char* name, std::int64_t rows) {
    return [=](EditableTensors& tensors) {
      RandomTensors more;
      more.add(name, {rows, 64});
      tensors.merge(more.take());
    };
  };
  const auto plain = load_with(kDSparkVanilla, [](EditableTensors&) {});
  for (const char* name : {"embed_tokens.weight", "lm_head.weight", "model.embed_tokens.weight"}) {
    const auto weights = load_with(kDSparkVanilla, with_copy(name, 512));
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->bytes, plain->bytes);
    EXPECT_EQ(weights_refusal(kDSparkVanilla, with_copy(name, 300)),
              std::string("tensor ") + name + ": shape [300, 64]; expected [512, 64]");
  }
}

TEST(BlockDraftWeights, FcMustFitTheFeatures) {
  EXPECT_EQ(weights_refusal(kDFlash,
                            [](EditableTensors& tensors) {
                              RandomTensors wider;
                              wider.add("fc.weight", {64, 192});
                              tensors["fc.weight"] = wider.take()["fc.weight"];
                            }),
            "tensor fc.weight: shape [64, 192]; expected [64, 128]: hidden size 64 from 2 target "
            "layers of 64");
}

TEST(BlockDraftWeights, TensorsThatNothingCallsForAreRefused) {
  for (const char* name : {"markov_head.markov_w3.weight", "confidence_head.extra.weight", "d2t",
                           "layers.0.self_attn.g_proj.weight", "mtp.fc.weight"}) {
    const std::string message = weights_refusal(kDSparkVanilla, [&](EditableTensors& tensors) {
      RandomTensors more;
      more.add(name, {8, 8});
      tensors.merge(more.take());
    });
    EXPECT_EQ(message, std::string("tensor ") + name +
                           " (F32 [8, 8]): nothing in config.json calls for it; expected only the "
                           "tensors of the described layers");
  }
  EXPECT_EQ(weights_refusal(
                kDSparkGated,
                [](EditableTensors& tensors) { tensors.erase("markov_head.gate_proj.bias"); }),
            "tensor markov_head.gate_proj.bias: missing; expected [8]");
}

TEST(BlockDraftWeights, WidthSaysWhetherConfidenceSeesTheMarkovEmbedding) {
  const auto weights = load_with(kDSparkVanilla, [](EditableTensors& tensors) {
    RandomTensors narrow;
    narrow.add("confidence_head.proj.weight", {1, 64});
    tensors["confidence_head.proj.weight"] = narrow.take()["confidence_head.proj.weight"];
  });
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->confidence->weight.size(), 64u);
}

}  // namespace
}  // namespace replayssm
