#include "model/cuda/decoder_buffers.h"

#include <algorithm>

#include "model/cuda/token_choice.h"
#include "model/float8.h"

namespace replayssm::cuda {
namespace {

constexpr std::int64_t kAlignment = 256;
// Of the H200, the largest card that is measured; the plan may be made without one.
constexpr int kMultiprocessors = 132;

// Hands out parts of memory one after the other, or counts them.
class Carver {
 public:
  Carver(std::byte* memory, std::int64_t from) : memory_(memory), used_(from) {}

  template <class T>
  void take(T*& part, std::int64_t elements) {
    part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (elements * std::int64_t{sizeof(T)} + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::int64_t used_;
};

std::int64_t value_width(const ModelConfig& config) {
  return std::int64_t{config.linear.value_heads} * kValueDim;
}

}  // namespace

int linear_in_width(const ModelConfig& config) {
  const int width = config.linear.channels() + config.linear.value_heads * (kValueDim + 2);
  return (width + 15) / 16 * 16;
}

int most_row_pages(const ModelConfig& config, int context_length, int page_tokens) {
  const int tokens = context_length > 0 ? context_length : config.max_positions;
  return (tokens + page_tokens - 1) / page_tokens;
}

std::size_t step_table_words(const StepSizes& sizes) {
  const auto rows = static_cast<std::size_t>(sizes.rows);
  return step_table_words(static_cast<std::size_t>(sizes.tokens), rows,
                          static_cast<std::size_t>(sizes.logit_rows),
                          rows * static_cast<std::size_t>(sizes.row_pages));
}

int query_width(const AttentionShape& shape) {
  return shape.head_dim * (shape.output_gate ? 2 : 1);
}

int attention_in_width(const ModelConfig& config) {
  const AttentionShape& shape = config.attention;
  return shape.heads * query_width(shape) + 2 * shape.kv_heads * shape.head_dim;
}

std::int64_t carve_activations(const ModelConfig& config, const StepSizes& sizes, std::byte* memory,
                               DecoderActivations& activations) {
  DecoderActivations& a = activations;
  const std::int64_t tokens = padded_tokens(sizes.tokens);
  const std::int64_t logit_rows = padded_tokens(sizes.logit_rows);
  const AttentionShape& shape = config.attention;
  const std::int64_t queries = std::int64_t{shape.heads} * shape.head_dim;
  Carver kept(memory, 0);
  kept.take(a.hidden, tokens * config.hidden_size);
  kept.take(a.normed, tokens * config.hidden_size);
  kept.take(a.mixed, tokens * std::max(value_width(config), queries));
  kept.take(a.logits, logit_rows * config.vocab_rows);
  kept.take(a.best, logit_rows);
  kept.take(a.best_parts, logit_rows * kBestParts);

  Carver linear(memory, kept.used());
  linear.take(a.linear_in, tokens * linear_in_width(config));
  linear.take(a.qkv, tokens * config.linear.channels());
  linear.take(a.gate, tokens * config.linear.value_heads);
  linear.take(a.beta, tokens * config.linear.value_heads);
  linear.take(a.core, tokens * value_width(config));

  Carver attention(memory, kept.used());
  attention.take(a.attention_in, tokens * attention_in_width(config));
  attention.take(a.queries, tokens * queries);

  Carver mlp(memory, kept.used());
  mlp.take(a.gate_up, tokens * 2 * config.intermediate_size);
  mlp.take(a.activated, tokens * config.intermediate_size);
  return std::max({linear.used(), attention.used(), mlp.used()});
}

std::int64_t carve_draft_head(const ModelConfig& config, int tokens, std::byte* memory,
                              DraftHeadBuffers& buffers) {
  const std::int64_t elements = std::int64_t{padded_tokens(tokens)} * config.hidden_size;
  Carver carver(memory, 0);
  carver.take(buffers.given, elements);
  carver.take(buffers.joined, 2 * elements);
  return carver.used();
}

std::int64_t draft_head_bytes(const ModelConfig& config, int tokens) {
  DraftHeadBuffers unplaced;
  return carve_draft_head(config, tokens, nullptr, unplaced);
}

std::int64_t attention_partial_bytes(const AttentionShape& shape, int rows) {
  if (shape.heads == 0) return 0;
  // FlashInfer (scheduler.cuh) splits as long as the tiles of queries are fewer than two blocks a
  // multiprocessor for each kv head; a captured batch has a tile, or for wide windows two, for each
  // of its rows besides. A tile's queries are those of all heads that share a kv head.
  const std::int64_t tiles = 2 * kMultiprocessors / shape.kv_heads + 1 + 2 * std::int64_t{rows};
  const std::int64_t tile = shape.head_dim < 256 ? 128 : 64;
  const std::int64_t queries = tiles * tile / shape.group() + 1;
  return queries * shape.heads * (shape.head_dim + 1) * std::int64_t{sizeof(float)} + kAlignment;
}

Float8InputBytes float8_input_bytes(int tokens, int cols) {
  const std::int64_t padded = padded_tokens(tokens);
  return {padded * cols, padded * float8_blocks(cols) * std::int64_t{sizeof(float)}};
}

int float8_cols(const ModelConfig& config) {
  if (!config.quantisation.float8_blocks) return 0;
  const int queries = config.attention.heads * config.attention.head_dim;
  // The widest of a draft head joins two hidden states.
  return std::max({2 * config.hidden_size, static_cast<int>(value_width(config)), queries,
                   config.intermediate_size});
}

// A mask and penalties of some hundred tokens for every row, and one row that penalises everything.
std::int64_t choice_table_bytes(int rows, int logit_rows, int vocabulary) {
  constexpr std::int64_t kChanges = 256;
  const std::int64_t mask = (std::int64_t{vocabulary} + 31) / 32 * 4;
  return logit_rows * std::int64_t{sizeof(RowChoice)} +
         rows * (mask + kChanges * std::int64_t{sizeof(LogitChange)}) +
         vocabulary * std::int64_t{sizeof(LogitChange)};
}

std::int64_t token_choice_bytes(int rows, int logit_rows, int vocabulary) {
  return choice_table_bytes(rows, logit_rows, vocabulary) +
         logit_rows * std::int64_t{sizeof(ChoiceBins) + sizeof(ChoiceList) + sizeof(RowLogprobs)};
}

std::int64_t decoder_device_bytes(const ModelConfig& config, const StepSizes& sizes,
                                  bool draft_head, bool fixed_order) {
  DecoderActivations unplaced;
  std::int64_t bytes = carve_activations(config, sizes, nullptr, unplaced);
  bytes += kProductWorkspaceBytes;
  const auto tables = static_cast<std::int64_t>(step_table_words(sizes) * sizeof(int));
  bytes += tables;
  bytes += token_choice_bytes(sizes.rows, sizes.logit_rows, config.vocab_size);
  if (config.attention.heads > 0) {
    bytes += kAttentionListBytes;
    if (!fixed_order) bytes += attention_partial_bytes(config.attention, sizes.rows);
  }
  const Float8InputBytes float8 = float8_input_bytes(sizes.tokens, float8_cols(config));
  bytes += float8.codes + float8.scales;
  if (draft_head) bytes += draft_head_bytes(config, sizes.tokens) + kAttentionListBytes + tables;
  return bytes;
}

}  // namespace replayssm::cuda
