// What a block drafter's config.json says. Block drafters guess several tokens in one pass: a few
// attention layers over features of the target and a block of rows, of which the first holds the
// newest token and the others a mask. Sources: DFlash (arXiv 2602.06036); DSpark (arXiv
// 2607.05147).
#pragma once

#include <cmath>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"
#include "model/config.h"

namespace replayssm {

// How a layer's rows see the block and the tokens before it.
struct BlockAttention {
  bool causal = false;  // otherwise all rows of the block see each other
  int window = 0;       // positions that a row sees, its own among them; 0: all
};

// The bias that a draft puts on the logits of the next one.
enum class MarkovKind { none, vanilla, gated, rnn };

struct BlockDraftConfig {
  // The decoder layers, as a model's: attention alone, norms that store their scale, rotary
  // embedding of whole heads. Hidden size and vocabulary are the target's.
  ModelConfig decoder;
  std::vector<BlockAttention> attention;  // one for each layer

  int block = 0;  // rows
  // Row k predicts the token after its position, the first row too; otherwise the token at its
  // position, and the first row nothing.
  bool from_anchor = false;
  // Layers of the target whose outputs are the features, in the order of their columns in fc;
  // kTapEmbedding is what the first layer reads.
  std::vector<int> target_layers;
  TokenId mask = 0;

  // Convolution over the rows of a block (DFlash2): 0 taps without.
  int conv_taps = 0;
  int conv_group = 0;  // channels that share what is added to the kernel
  // Choice among the most likely tokens of each row by pairs (DFlash2): rank 0 without.
  int selector_rank = 0;
  int selector_top = 0;
  double embedding_scale = 1.0;
  double output_multiplier = 1.0;
  double softcap = 0.0;  // of the logits, after the multiplier: c tanh(x / c); 0: none

  MarkovKind markov = MarkovKind::none;
  int markov_rank = 0;
  std::optional<bool> confidence;              // empty: if its weights are there
  std::optional<bool> confidence_with_markov;  // empty: what the weights' width says
  // By draft; empty: all 1. A confidence is sigmoid(logit / temperature).
  std::vector<double> confidence_temperatures;

  int drafts() const { return from_anchor ? block : block - 1; }
  // What becomes of a logit of the target's head.
  bool scales_logits() const { return output_multiplier != 1.0 || softcap > 0; }
  float scaled_logit(float logit) const {
    const double scaled = logit * output_multiplier;
    return static_cast<float>(softcap > 0 ? softcap * std::tanh(scaled / softcap) : scaled);
  }
  int features() const { return static_cast<int>(target_layers.size()); }
  // Made for the other algorithm: DSpark's classes have heads that DFlash has not.
  bool has_dspark_heads() const { return markov != MarkovKind::none || confidence.value_or(false); }
};

// Reads config.json of a drafter for `target`: DFlashDraftModel, DFlash2DraftModel,
// Qwen3DSparkModel, DSparkDraftModel, or a speculators file of type dflash or dspark. Where several
// places may hold a field, all that do must agree. Errors name file, field, value and what is
// accepted; EAGLE-3 drafters and variants that are not built are refused by name.
Result<BlockDraftConfig> load_block_draft_config(const std::filesystem::path& directory,
                                                 const ModelConfig& target);

}  // namespace replayssm
