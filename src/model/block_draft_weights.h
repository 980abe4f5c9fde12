// The tensors of a block drafter. Its embedding and head are the target's.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/result.h"
#include "model/block_draft_config.h"
#include "model/weights.h"

namespace replayssm {

// h = hidden_size, V = vocabulary rows, r = the rank of a head.

// Convolution over the rows of a block, before (side 0) and after (side 1) a sub-layer.
struct BlockConvWeights {
  std::vector<float> base;  // [2, taps, h]
  WeightMatrix projection;  // [2 * taps * h / group, h], what is added: side, tap, group
};

struct CandidateSelectorWeights {
  WeightMatrix predecessors;  // [V, r]
  WeightMatrix successors;    // [V, r]
  WeightMatrix projection;    // [r, h]
};

struct MarkovWeights {
  WeightMatrix embedding;        // [V, r]
  WeightMatrix out;              // [V, r]
  WeightMatrix gate;             // gated: [r, h + r]; rnn: [3 r, 2 r + h]
  std::vector<float> gate_bias;  // its rows
};

struct ConfidenceWeights {
  std::vector<float> weight;  // [h], or [h + r] where it sees the Markov embedding
  float bias = 0;
};

// Move-only; views stay valid when it is moved. Read-only after load.
class BlockDraftWeights {
 public:
  BlockDraftWeights();
  ~BlockDraftWeights();
  BlockDraftWeights(BlockDraftWeights&&) noexcept;
  BlockDraftWeights& operator=(BlockDraftWeights&&) noexcept;

  WeightMatrix fc;                       // [h, features * h]
  std::vector<float> hidden_norm_scale;  // [h]
  std::vector<LayerWeights> layers;      // their mixers are attention
  std::vector<float> norm_scale;         // [h]
  // By layer, around attention and MLP; empty without.
  std::vector<BlockConvWeights> attention_convs;
  std::vector<BlockConvWeights> mlp_convs;
  std::optional<CandidateSelectorWeights> selector;
  std::optional<MarkovWeights> markov;
  std::optional<ConfidenceWeights> confidence;

  // Bytes of all tensors in use, as they are used.
  std::int64_t bytes = 0;

 private:
  friend Result<BlockDraftWeights> load_block_draft_weights(const std::filesystem::path&,
                                                            const BlockDraftConfig&);
  std::unique_ptr<CheckpointStorage> storage_;
};

// Maps the safetensors files of a drafter's directory and finds every tensor that `config` calls
// for, under its plain name, behind "model." or "logit_head.", or under encoder.*. Copies of the
// target's embedding and head are left out if their shapes are the target's. Errors name file and
// tensor with what was expected and what was found.
Result<BlockDraftWeights> load_block_draft_weights(const std::filesystem::path& directory,
                                                   const BlockDraftConfig& config);

}  // namespace replayssm
