// The tensors of a loaded checkpoint, by their role. Matrices stay as stored, in the memory-mapped
// files, where that is bf16, f16 or f32 in the rows' right order; others are converted once, at
// load: float8 blocks to bf16. Vectors and convolution taps are small and are widened to fp32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "model/config.h"

namespace replayssm {

// A view of one matrix, row-major [rows, cols] = [out, in]: y = W x. `data` is aligned to at least
// the element size, belongs to the Weights it came from and lives as long as they do.
struct WeightMatrix {
  int rows = 0;
  int cols = 0;
  DType type = DType::bf16;  // bf16, f16 or f32
  const void* data = nullptr;
  // `data` are e4m3 codes, whatever `type` says, and block_scales [float8_blocks(rows),
  // float8_blocks(cols)] their multipliers (float8.h). Only with Float8::kept.
  bool float8 = false;
  const float* block_scales = nullptr;

  std::int64_t bytes() const {
    return std::int64_t{rows} * cols * (float8 ? 1 : static_cast<std::int64_t>(size_of(type)));
  }
};

// h = hidden_size, H and HV = key and value heads, C = HeadShape::channels(), E = HV * V.
// Norm vectors named *_scale are what the normalised vector is multiplied by. The zero-centred
// norms of some families store w and scale by 1 + w; the addition has been done, in fp32.
struct GdnWeights {
  WeightMatrix qkv;               // [C, h], rows: all q heads, all k heads, all v heads
  WeightMatrix z;                 // [E, h], output gate
  WeightMatrix b;                 // [HV, h], beta before its sigmoid
  WeightMatrix a;                 // [HV, h], input of the log gate
  WeightMatrix out;               // [h, E]
  std::vector<float> conv;        // [C, 4]; tap 3 meets the current token
  std::vector<float> a_log;       // [HV]
  std::vector<float> dt_bias;     // [HV]
  std::vector<float> norm_scale;  // [V], stored w itself: this norm is not zero-centred
};

// Kimi Delta Attention: D = HV * K, with as many key heads as value heads.
struct KdaWeights {
  WeightMatrix q;                 // [D, h]
  WeightMatrix k;                 // [D, h]
  WeightMatrix v;                 // [D, h]
  WeightMatrix forget_down;       // [K, h]; the log gate's input is forget_up forget_down u
  WeightMatrix forget_up;         // [D, K]
  WeightMatrix b;                 // [HV, h], beta before its sigmoid
  WeightMatrix gate_down;         // [V, h]; the output gate is gate_up gate_down u
  WeightMatrix gate_up;           // [D, V]
  WeightMatrix out;               // [h, D]
  std::vector<float> conv;        // [3 D, 4], those of q, k and v; tap 3 meets the current token
  std::vector<float> a_log;       // [HV]
  std::vector<float> dt_bias;     // [HV, K]
  std::vector<float> norm_scale;  // [V]
};

// n and kv = query and kv heads, d = head_dim.
struct AttentionWeights {
  WeightMatrix q;  // [n * 2 * d, h], for each head d queries, then d gates; [n * d, h] without gate
  WeightMatrix k;  // [kv * d, h]
  WeightMatrix v;  // [kv * d, h]
  WeightMatrix out;                 // [h, n * d]
  std::vector<float> q_norm_scale;  // [d]
  std::vector<float> k_norm_scale;  // [d]
};

// f = intermediate_size.
struct MlpWeights {
  WeightMatrix gate;  // [f, h]
  WeightMatrix up;    // [f, h]
  WeightMatrix down;  // [h, f]
};

struct LayerWeights {
  std::vector<float> mixer_norm_scale;  // [h], input_layernorm
  std::variant<GdnWeights, KdaWeights, AttentionWeights> mixer;
  std::vector<float> mlp_norm_scale;  // [h], post_attention_layernorm
  MlpWeights mlp;
};

// The draft head, mtp.*.
struct MtpWeights {
  WeightMatrix fc;                          // [h, 2 h], of embedding and hidden state
  std::vector<float> embedding_norm_scale;  // [h]
  std::vector<float> hidden_norm_scale;     // [h]
  LayerWeights layer;                       // its mixer is attention
  std::vector<float> norm_scale;            // [h]
};

struct CheckpointStorage;

// What becomes of matrices that are stored as float8 blocks: bf16 at load, or codes and multipliers
// as stored. The embedding and the head, parts of matrices that are stored as one, and convolutions
// are bf16 all the same.
enum class Float8 { dequantised, kept };

// Whether random matrices are made here, or have a shape and no data, for a device to make.
enum class DummyMatrices { made, shapes_only };

// Owns the mapped files, and the copies where a tensor had to be converted. Move-only; views stay
// valid when it is moved. Read-only after load, so any number of threads may read it.
class Weights {
 public:
  Weights();
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  WeightMatrix embedding;  // [vocab_rows, h]
  WeightMatrix head;       // [vocab_rows, h]; equals `embedding` where the head is tied
  std::vector<float> final_norm_scale;  // [h]
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> draft_head;  // if it was asked for

  // Bytes of all tensors in use, as they are used; a tied head counted once.
  std::int64_t bytes = 0;

  // Gives up all other tensors, and the memory of those that were converted.
  void keep_embedding_and_head();

 private:
  friend Result<Weights> load_weights(const std::filesystem::path&, const ModelConfig&, bool,
                                      Float8);
  friend Result<Weights> random_weights(const ModelConfig&, bool, DummyMatrices, Float8);
  std::unique_ptr<CheckpointStorage> storage_;
};

// Whether the directory's files hold a draft head; false also where they cannot be read.
bool has_draft_head(const std::filesystem::path& directory);

// Maps the safetensors files of a Hugging Face directory (model.safetensors, or the shards that
// model.safetensors.index.json names) and finds every tensor that `config` calls for. The vision
// tower (model.visual.*) is not read, the draft head (mtp.*) only `with_draft_head`. Errors name
// the file or tensor with what was expected and what was found.
Result<Weights> load_weights(const std::filesystem::path& directory, const ModelConfig& config,
                             bool with_draft_head = false, Float8 float8 = Float8::dequantised);

// Random weights of the same shapes, for measuring speed; a model with them says nothing of sense.
// No files. bf16; with Float8::kept, and without data, float8 where the configuration has blocks
// and does not exclude the matrix.
Result<Weights> random_weights(const ModelConfig& config, bool with_draft_head = false,
                               DummyMatrices matrices = DummyMatrices::made,
                               Float8 float8 = Float8::dequantised);

}  // namespace replayssm
