#include "model/decoder_step.h"

#include "model/embedding.h"
#include "model/onednn_product.h"
#include "model/rope.h"

namespace replayssm {
namespace {

MatmulPolicy policy_for(const ModelOptions& options) {
  return {options.deterministic, options.activations, onednn_has_bf16_instructions()};
}

// The widest input of any matrix product.
int widest_input(const ModelConfig& config, int widest) {
  return std::max({widest, config.hidden_size, config.intermediate_size,
                   config.linear.value_heads * kValueDim,
                   config.attention.heads * config.attention.head_dim});
}

}  // namespace

DecoderStep::DecoderStep(const ModelConfig& config, const ModelOptions& options, ThreadPool& pool,
                         LinearOps& ops, int widest)
    : config_(config),
      options_(options),
      pool_(pool),
      ops_(ops),
      frequencies_(rope_frequencies(config.rope)),
      matmul_(pool, policy_for(options), options.max_step_tokens, widest_input(config, widest)),
      attention_(pool, config.attention, options.max_step_tokens),
      workspace_(config, options.max_step_tokens) {
  const auto rows = static_cast<std::size_t>(options.max_step_tokens);
  windows_.reserve(rows);
  chunks_.reserve(rows);
  all_rows_.reserve(rows);
  spans_.reserve(rows);
}

std::int64_t DecoderStep::bytes(const ModelConfig& config, const ModelOptions& options, int threads,
                                int tokens, int widest) {
  return Workspace::bytes(config, tokens) +
         Matmul::scratch_bytes(threads, policy_for(options), tokens, widest_input(config, widest)) +
         Attention::scratch_bytes(threads, config.attention, tokens);
}

void DecoderStep::begin(const Batch& batch, const WeightMatrix& embedding) {
  const StepActivations& act = activations();
  clear_rows();
  tokens_ = static_cast<int>(batch.tokens.size());
  const auto width = static_cast<std::size_t>(config_.hidden_size);
  for (const BatchRow& row : batch.rows) {
    const RowTokens& span = row.span;
    (span.phase == Phase::prefill ? chunks_ : windows_).push_back(span);
    all_rows_.push_back(span);
    const auto first = static_cast<std::size_t>(span.first_token);
    const auto count = static_cast<std::size_t>(span.tokens);
    if (row.null) {
      std::fill_n(act.hidden + first * width, count * width, 0.0f);
      continue;
    }
    place({row.start, span.first_token, span.tokens, row.pages});
    embed_tokens(spans_.back(), batch.tokens, embedding);
  }
}

void DecoderStep::begin(std::span<const TokenId> tokens, std::span<const AttentionSpan> spans,
                        const WeightMatrix& embedding) {
  begin(spans);
  for (const AttentionSpan& span : spans) embed_tokens(span, tokens, embedding);
}

void DecoderStep::begin(std::span<const AttentionSpan> spans) {
  clear_rows();
  tokens_ = 0;
  for (const AttentionSpan& span : spans) {
    tokens_ += span.tokens;
    place(span);
  }
}

void DecoderStep::clear_rows() {
  windows_.clear();
  chunks_.clear();
  all_rows_.clear();
  spans_.clear();
}

// Takes up a row: computes the angles of its positions.
void DecoderStep::place(const AttentionSpan& span) {
  const StepActivations& act = activations();
  const std::size_t pairs = frequencies_.size();
  spans_.push_back(span);
  for (int n = 0; n < span.tokens; ++n) {
    const std::size_t at = static_cast<std::size_t>(span.first_token + n) * pairs;
    rope_angles(frequencies_, config_.rope.attention_factor, span.start + n, type(),
                act.cosine + at, act.sine + at);
  }
}

void DecoderStep::embed_tokens(const AttentionSpan& span, std::span<const TokenId> tokens,
                               const WeightMatrix& embedding) {
  const auto width = static_cast<std::size_t>(config_.hidden_size);
  for (int n = 0; n < span.tokens; ++n) {
    const auto i = static_cast<std::size_t>(span.first_token + n);
    embed(embedding, tokens[i], type(), activations().hidden + i * width);
  }
}

void DecoderStep::project(const float* x, std::initializer_list<Product> products) {
  const auto width = static_cast<std::size_t>(products.begin()->weight->cols);
  matmul_.run(x, width, tokens_, {products.begin(), products.size()});
}

void DecoderStep::project(const float* x, int rows, const Product& product, bool exact) {
  matmul_.run(x, static_cast<std::size_t>(product.weight->cols), rows, {&product, 1}, exact);
}

}  // namespace replayssm
