// The activations of one step on the device, and how much memory a decoder there needs beside its
// weights. Sizes are pure functions of shapes: the memory plan asks for them without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bfloat16.h"
#include "model/config.h"
#include "model/model.h"

namespace replayssm::cuda {

// The most of what one step may have.
struct StepSizes {
  int tokens = 0;
  int rows = 0;
  int logit_rows = 0;
  int row_pages = 0;  // of one row's positions
};

// Pages of a row of the longest context; the configuration's where `context_length` is 0.
int most_row_pages(const ModelConfig& config, int context_length, int page_tokens);

// The search for a row's largest logit: a candidate of each of its parts, one thread block each.
struct BestToken {
  float logit;
  int token;
};
inline constexpr int kBestParts = 32;

// Products may read and write up to a multiple of so many tokens, see Gemm::run(): every array has
// room for padded_tokens().
inline constexpr int kTokenMultiple = 8;

constexpr int padded_tokens(int tokens) {
  return (tokens + kTokenMultiple - 1) / kTokenMultiple * kTokenMultiple;
}

// [tokens, ...] each. The arrays of the two mixers and of the MLP share memory: only one of them is
// live at a time.
struct DecoderActivations {
  bf16* hidden = nullptr;   // [tokens, h] residual stream
  bf16* normed = nullptr;   // [tokens, h]
  bf16* mixed = nullptr;    // [tokens, HV V] or [tokens, heads head_dim], input of the out product
  float* logits = nullptr;  // [logit_rows, vocab_rows]
  int* best = nullptr;      // [logit_rows]
  BestToken* best_parts = nullptr;  // [logit_rows, kBestParts]

  bf16* linear_in = nullptr;  // [tokens, linear_in_width()]
  bf16* qkv = nullptr;        // [tokens, C], convolved
  float* gate = nullptr;      // [tokens, HV]
  float* beta = nullptr;      // [tokens, HV]
  bf16* core = nullptr;       // [tokens, HV, V]

  bf16* attention_in = nullptr;  // [tokens, attention_in_width()]
  bf16* queries = nullptr;       // [tokens, heads, head_dim]

  bf16* gate_up = nullptr;    // [tokens, 2 f]
  bf16* activated = nullptr;  // [tokens, f]
};

// Rows of the input products: q k v, z, b and a of a gated delta layer, up to a multiple of 16;
// queries with their gates, keys and values of an attention layer.
int linear_in_width(const ModelConfig& config);
int attention_in_width(const ModelConfig& config);
// From one head's queries to the next one's.
int query_width(const AttentionShape& shape);

// Carves `memory`; null: only counts. Returns the bytes that are needed.
std::int64_t carve_activations(const ModelConfig& config, const StepSizes& sizes, std::byte* memory,
                               DecoderActivations& activations);

// Of a draft head, beside the arrays of the decoder that it uses.
struct DraftHeadBuffers {
  bf16* given = nullptr;   // [tokens, h] hidden states before the tokens, then the head's own
  bf16* joined = nullptr;  // [tokens, 2 h]
};
std::int64_t carve_draft_head(const ModelConfig& config, int tokens, std::byte* memory,
                              DraftHeadBuffers& buffers);
std::int64_t draft_head_bytes(const ModelConfig& config, int tokens);

// Bytes of the partial results of attention over rows whose positions are split over blocks.
std::int64_t attention_partial_bytes(const AttentionShape& shape, int rows);

// Of the input of a product with float8 rows (gemm.h), [tokens, cols].
struct Float8InputBytes {
  std::int64_t codes = 0;
  std::int64_t scales = 0;
};
Float8InputBytes float8_input_bytes(int tokens, int cols);
// Columns of the widest matrix that may have float8 rows; 0 in a model without float8 blocks.
int float8_cols(const ModelConfig& config);

// Of choosing tokens: room for what a step asks, or the part of it that goes at a time, and that
// with what the kernels need beside it.
std::int64_t choice_table_bytes(int rows, int logit_rows, int vocabulary);
std::int64_t token_choice_bytes(int rows, int logit_rows, int vocabulary);

// What cuBLAS documents as enough for its fastest algorithms on Hopper.
inline constexpr std::int64_t kProductWorkspaceBytes = std::int64_t{32} << 20;
// Of the lists that say how a step's attention is cut.
inline constexpr std::int64_t kAttentionListBytes = std::int64_t{8} << 20;

// What is planned for captured steps and for what the libraries load. 0 to 40 MiB beyond the other
// lines of the plan were in use with one graph (docs/measurements/h200-engine.md).
inline constexpr std::int64_t kGraphBytes = std::int64_t{128} << 20;

// Words of the numbers of a step of so many that kernels read from device memory (step_tables.h);
// `pages`: of all rows.
constexpr std::size_t step_table_words(std::size_t tokens, std::size_t rows, std::size_t logit_rows,
                                       std::size_t pages) {
  // Tasks of chunks are fewer than their tokens plus rows, four words each.
  return 8 * tokens + 16 * (rows + 8) + logit_rows + pages;
}
// The most that a step of these sizes has.
std::size_t step_table_words(const StepSizes& sizes);

// Everything that a decoder, with its draft head if `draft_head`, allocates on the device beside
// its weights. `fixed_order`: as AttentionOrder.
std::int64_t decoder_device_bytes(const ModelConfig& config, const StepSizes& sizes,
                                  bool draft_head, bool fixed_order);

}  // namespace replayssm::cuda
