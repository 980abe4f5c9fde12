// What a checkpoint's configuration files say, checked once at load. Everything that the forward
// pass or the sampler needs to know about a model besides its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/strong_id.h"
#include "model/generation_config.h"
#include "model/quantisation.h"
#include "ops/shape.h"

namespace replayssm {

// The mixer of a layer: linear attention (a delta rule with gates), or full attention.
enum class LayerKind { linear, attention };

// What a model_type stands for: how its tensors are named, ordered and normalised.
enum class ModelFamily {
  qwen3_5,     // qwen3_5, qwen3_5_text: gated delta rule, a matrix for each projection
  qwen3_next,  // the same with projections fused by key head
  // Kimi Delta Attention, norms that are not zero-centred.
  kimi_linear,
  // qwen3_5_text with the linear layers of kimi_linear. This project's own, for its tests: the
  // smallest model with both a gate for each channel and attention that is built.
  kda_hybrid,
};

// Full-attention layers. Query head n uses kv head n / group(). All 0 in a model without any.
struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;  // divides heads
  int head_dim = 0;
  // The rows of q_proj are, for each head, head_dim queries and then head_dim gates.
  bool output_gate = true;

  int group() const { return kv_heads == 0 ? 0 : heads / kv_heads; }
};

enum class RopeKind { standard, yarn };

// Rotary embedding of the first rotary_dim dimensions of a head, in NeoX halves: dimension i is
// paired with i + rotary_dim / 2 at the angle position * theta^(-2 i / rotary_dim). The YaRN fields
// hold their resolved values (defaults applied) and mean nothing for RopeKind::standard.
struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000.0;
  int rotary_dim = 0;  // even, <= head_dim
  double factor = 1.0;
  int original_max_positions = 0;
  double attention_factor = 1.0;  // multiplies cosine and sine
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // whole dimensions as bounds of the ramp
};

// Consistent once load_config has returned it.
struct ModelConfig {
  std::string model_type;  // as in the file
  ModelFamily family = ModelFamily::qwen3_5;
  // Prefix of the decoder's tensors in the checkpoint: "model.language_model." or "model.".
  std::string tensor_prefix;

  int hidden_size = 0;
  int intermediate_size = 0;
  std::vector<LayerKind> layers;  // one for each decoder layer
  // Rows of the embedding and of the head. Ids in [vocab_size, vocab_rows) are padding that no
  // tokenizer produces and no sampler may choose.
  int vocab_rows = 0;
  int vocab_size = 0;

  AttentionShape attention;
  RopeConfig rope;
  HeadShape linear;  // value and key dimension are kValueDim and kKeyDim
  // Norms store w and scale by 1 + w; not those at the end of a linear layer.
  bool zero_centred_norms = true;
  double rms_norm_eps = 1e-6;
  bool tied_head = false;  // the head is the embedding
  int max_positions = 0;
  DType state_type = DType::f32;    // recurrent state that the checkpoint asks for
  DType weight_type = DType::bf16;  // as config.json says; tensors say their own
  Quantisation quantisation;

  // Of a draft head (mtp.*), whether the checkpoint has one or not.
  int draft_layers = 1;
  bool draft_embeddings = false;  // an embedding and a head of its own

  TokenId bos = -1;  // -1: none
  TokenId pad = -1;  // -1: none
  // Ascending, without duplicates: the union of config.json, generation_config.json and the eos
  // token of tokenizer_config.json. Any of them ends a generation.
  std::vector<TokenId> eos;
  GenerationDefaults generation;

  int layer_count() const { return static_cast<int>(layers.size()); }
  int count(LayerKind kind) const;
  bool is_eos(TokenId token) const;
};

// Reads config.json (required) and, where they exist, generation_config.json, tokenizer.json and
// tokenizer_config.json of a Hugging Face directory. Accepts qwen3_5, qwen3_5_text,
// qwen3_next and kda_hybrid, without experts, and kimi_linear where every layer is linear and
// dense. Errors name file, field, value and what is accepted; a file's content never causes an
// exception.
Result<ModelConfig> load_config(const std::filesystem::path& directory);

}  // namespace replayssm
