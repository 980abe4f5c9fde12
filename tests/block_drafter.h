// Random block drafters for the small checkpoint ratio1_float32_flat_tied: hidden size 64,
// 4 layers, vocabulary 512.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/random_stream.h"
#include "test_checkpoint.h"

namespace replayssm {

struct DrafterKind {
  const char* name;
  bool dspark = false;
  bool dflash2 = false;
  const char* markov = nullptr;
  bool sliding = false;  // the first layer
  bool confidence = false;
};

inline constexpr DrafterKind kDFlash{"dflash"};
inline constexpr DrafterKind kDFlashSliding{"dflash_sliding", false, false, nullptr, true};
inline constexpr DrafterKind kDFlash2{"dflash2", false, true, nullptr, true};
inline constexpr DrafterKind kDSparkPlain{"dspark_plain", true};
inline constexpr DrafterKind kDSparkVanilla{"dspark_vanilla", true, false, "vanilla", false, true};
inline constexpr DrafterKind kDSparkGated{"dspark_gated", true, false, "gated", false, true};
inline constexpr DrafterKind kDSparkRnn{"dspark_rnn", true, false, "rnn", false, true};
inline constexpr DrafterKind kDrafterKinds[] = {
    kDFlash, kDFlashSliding, kDFlash2, kDSparkPlain, kDSparkVanilla, kDSparkGated, kDSparkRnn};

inline nlohmann::json drafter_config(const DrafterKind& kind) {
  nlohmann::json config = {{"architectures",
                            {kind.dspark    ? "Qwen3DSparkModel"
                             : kind.dflash2 ? "DFlash2DraftModel"
                                            : "DFlashDraftModel"}},
                           {"model_type", "qwen3"},
                           {"hidden_size", 64},
                           {"intermediate_size", 96},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 16},
                           {"hidden_act", "silu"},
                           {"vocab_size", 512},
                           {"rope_theta", 50000.0},
                           {"rms_norm_eps", 1e-5},
                           {"max_position_embeddings", 1024},
                           {"num_target_layers", 4},
                           {"layer_types", {"full_attention", "full_attention"}},
                           {"dtype", "float32"}};
  if (kind.sliding) {
    config["layer_types"][0] = "sliding_attention";
    config["sliding_window"] = 6;
  }
  if (kind.dspark) {
    config["block_size"] = 7;
    config["target_layer_ids"] = {-1, 1, 2};
    config["mask_token_id"] = 500;
    if (kind.markov != nullptr) {
      config["markov_rank"] = 8;
      config["markov_head_type"] = kind.markov;
    }
    config["enable_confidence_head"] = kind.confidence;
    return config;
  }
  nlohmann::json dflash = {{"block_size", 8}, {"target_layer_ids", {0, 2}}, {"mask_token_id", 500}};
  if (kind.dflash2) {
    dflash.update({{"conv_kernel_size", 2},
                   {"conv_group_size", 16},
                   {"selector_rank", 12},
                   {"selector_top_k", 5},
                   {"input_embedding_scale", 1.5},
                   {"output_multiplier", 0.75},
                   {"final_logit_softcapping", 2.0}});
  }
  config["dflash_config"] = dflash;
  return config;
}

// Random tensors of one shape each; a seed of its own for each.
class RandomTensors {
 public:
  // Matrices keep about the length of what they are multiplied with; norms are near 1.
  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    const bool norm = name.find("norm") != std::string::npos;
    const double scale =
        shape.size() == 1 ? 0.4 : 3.0 / std::sqrt(static_cast<double>(shape.back()));
    std::int64_t elements = 1;
    for (const std::int64_t length : shape) elements *= length;
    std::vector<float> values;
    ++seed_;
    for (std::int64_t i = 0; i < elements; ++i) {
      const double uniform = uniform_at(seed_, static_cast<std::uint64_t>(i)) - 0.5;
      values.push_back(static_cast<float>(scale * uniform + (norm ? 1.0 : 0.0)));
    }
    set(name, shape, values);
  }
  void set(const std::string& name, const std::vector<std::int64_t>& shape,
           const std::vector<float>& values) {
    EditableTensor& tensor = tensors_[name];
    tensor.dtype = "F32";
    tensor.shape = shape;
    set_values(tensor, values);
  }

  EditableTensors take() { return std::move(tensors_); }

 private:
  std::uint64_t seed_ = 200;
  EditableTensors tensors_;
};

inline EditableTensors drafter_tensors(const DrafterKind& kind) {
  constexpr std::int64_t kHidden = 64, kWidth = 96, kVocabulary = 512, kQueries = 64, kKeys = 32;
  constexpr std::int64_t kRank = 8, kSelectorRank = 12;
  RandomTensors tensors;
  tensors.add("fc.weight", {kHidden, (kind.dspark ? 3 : 2) * kHidden});
  tensors.add("hidden_norm.weight", {kHidden});
  tensors.add("norm.weight", {kHidden});
  for (const char* layer : {"layers.0.", "layers.1."}) {
    const auto add = [&](const char* name, const std::vector<std::int64_t>& shape) {
      tensors.add(std::string(layer) + name, shape);
    };
    add("input_layernorm.weight", {kHidden});
    add("post_attention_layernorm.weight", {kHidden});
    add("self_attn.q_proj.weight", {kQueries, kHidden});
    add("self_attn.k_proj.weight", {kKeys, kHidden});
    add("self_attn.v_proj.weight", {kKeys, kHidden});
    add("self_attn.o_proj.weight", {kHidden, kQueries});
    add("self_attn.q_norm.weight", {16});
    add("self_attn.k_norm.weight", {16});
    add("mlp.gate_proj.weight", {kWidth, kHidden});
    add("mlp.up_proj.weight", {kWidth, kHidden});
    add("mlp.down_proj.weight", {kHidden, kWidth});
    if (!kind.dflash2) continue;
    for (const char* conv : {"attention_conv.", "mlp_conv."}) {
      tensors.add(std::string(layer) + conv + "base_kernel", {2, 2, kHidden});
      tensors.add(std::string(layer) + conv + "kernel_projection.weight", {16, kHidden});
    }
  }
  if (kind.dflash2) {
    tensors.add("candidate_selector.predecessor_codebook", {kVocabulary, kSelectorRank});
    tensors.add("candidate_selector.successor_codebook", {kVocabulary, kSelectorRank});
    tensors.add("candidate_selector.hidden_projection.weight", {kSelectorRank, kHidden});
  }
  const std::string markov = kind.markov == nullptr ? "" : kind.markov;
  if (!markov.empty()) {
    tensors.add("markov_head.markov_w1.weight", {kVocabulary, kRank});
    tensors.add("markov_head.markov_w2.weight", {kVocabulary, kRank});
  }
  if (markov == "gated") {
    tensors.add("markov_head.gate_proj.weight", {kRank, kHidden + kRank});
    tensors.add("markov_head.gate_proj.bias", {kRank});
  } else if (markov == "rnn") {
    tensors.add("markov_head.joint_proj.weight", {3 * kRank, 2 * kRank + kHidden});
    tensors.add("markov_head.joint_proj.bias", {3 * kRank});
  }
  if (kind.confidence) {
    tensors.add("confidence_head.proj.weight", {1, kHidden + kRank});
    tensors.add("confidence_head.proj.bias", {1});
  }
  return tensors.take();
}

// A directory with config.json and model.safetensors of the drafter, removed at the end.
class TestDrafter {
 public:
  explicit TestDrafter(const DrafterKind& kind) : files_("ratio1_float32_flat_tied") {
    files_.write("config.json", drafter_config(kind).dump());
    files_.edit_tensors([&](EditableTensors& tensors) { tensors = drafter_tensors(kind); });
  }

  const std::filesystem::path& path() const { return files_.path(); }
  const TestCheckpoint& files() const { return files_; }

 private:
  TestCheckpoint files_;
};

}  // namespace replayssm
