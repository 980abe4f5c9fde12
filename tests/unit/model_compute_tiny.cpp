#include "unit/model_compute_tiny.h"

#include <cmath>
#include <deque>
#include <random>
#include <stdexcept>

#include "core/bfloat16.h"
#include "model/decoder.h"

namespace replayssm {
namespace {

void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

// bf16 matrices live as long as the process: Weights only views what a file would own.
WeightMatrix matrix(int rows, int cols, std::mt19937& random) {
  static std::deque<std::vector<bf16>> storage;
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(cols)));
  std::vector<bf16>& data = storage.emplace_back(static_cast<std::size_t>(rows * cols));
  for (bf16& x : data) x = to_bf16(normal(random));
  return {rows, cols, DType::bf16, data.data()};
}

std::vector<float> vector(int size, float mean, float spread, std::mt19937& random) {
  std::normal_distribution<float> normal(mean, spread);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& x : values) x = round_to_bf16(normal(random));
  return values;
}

Weights random_weights(const ModelConfig& c, unsigned seed) {
  std::mt19937 random(seed);
  Weights w;
  const int h = c.hidden_size;
  w.embedding = matrix(c.vocab_rows, h, random);
  w.head = matrix(c.vocab_rows, h, random);
  w.final_norm_scale = vector(h, 1.0f, 0.1f, random);
  for (const LayerKind kind : c.layers) {
    LayerWeights layer;
    layer.mixer_norm_scale = vector(h, 1.0f, 0.1f, random);
    layer.mlp_norm_scale = vector(h, 1.0f, 0.1f, random);
    if (kind == LayerKind::linear) {
      GdnWeights g;
      const int values = c.linear.value_heads * kValueDim;
      g.qkv = matrix(c.linear.channels(), h, random);
      g.z = matrix(values, h, random);
      g.b = matrix(c.linear.value_heads, h, random);
      g.a = matrix(c.linear.value_heads, h, random);
      g.out = matrix(h, values, random);
      g.conv = vector(c.linear.channels() * kConvWidth, 0.0f, 0.5f, random);
      g.a_log = vector(c.linear.value_heads, 0.0f, 0.5f, random);
      g.dt_bias = vector(c.linear.value_heads, -2.0f, 0.5f, random);
      g.norm_scale = vector(kValueDim, 1.0f, 0.1f, random);
      layer.mixer = g;
    } else {
      AttentionWeights a;
      const AttentionShape& s = c.attention;
      a.q = matrix(s.heads * 2 * s.head_dim, h, random);
      a.k = matrix(s.kv_heads * s.head_dim, h, random);
      a.v = matrix(s.kv_heads * s.head_dim, h, random);
      a.out = matrix(h, s.heads * s.head_dim, random);
      a.q_norm_scale = vector(s.head_dim, 1.0f, 0.1f, random);
      a.k_norm_scale = vector(s.head_dim, 1.0f, 0.1f, random);
      layer.mixer = a;
    }
    layer.mlp.gate = matrix(c.intermediate_size, h, random);
    layer.mlp.up = matrix(c.intermediate_size, h, random);
    layer.mlp.down = matrix(h, c.intermediate_size, random);
    w.layers.push_back(std::move(layer));
  }
  return w;
}

}  // namespace

ModelConfig tiny_config() {
  ModelConfig c;
  c.model_type = "qwen3_5_text";
  c.hidden_size = 72;
  c.intermediate_size = 100;
  c.layers = {LayerKind::linear, LayerKind::attention, LayerKind::linear};
  c.vocab_rows = 53;
  c.vocab_size = 50;
  c.attention = {4, 2, 32, true};
  c.rope.rotary_dim = 16;
  c.linear.key_heads = 1;
  c.linear.value_heads = 2;
  c.max_positions = 1024;
  return c;
}

TinyModel::TinyModel(const ModelOptions& options, int threads, int sequences, unsigned seed)
    : pool_(threads), ops_(make_cpu_ops(pool_)) {
  const ModelConfig config = tiny_config();
  model_ = must(make_decoder(config, random_weights(config, seed), options, pool_, *ops_));
  SequenceLayout layout;
  layout.linear_layers = config.count(LayerKind::linear);
  layout.attention_layers = config.count(LayerKind::attention);
  layout.heads = config.linear;
  layout.kv_heads = config.attention.kv_heads;
  layout.head_dim = config.attention.head_dim;
  layout.geometry = options.geometry;
  layout.recurrence = options.recurrence;
  layout.activation_type = options.activations;
  memory_ = std::make_unique<SequenceMemory>(
      layout, PoolSizes{sequences, sequences, sequences * 16}, Poison::on);
  for (int i = 0; i < sequences; ++i) sequences_.push_back(must(memory_->admit()));
}

void TinyModel::prepare(const std::vector<Part>& parts, Batch& batch) {
  batch.tokens.clear();
  batch.rows.clear();
  for (const Part& part : parts) {
    Residence& sequence = sequences_[static_cast<std::size_t>(part.sequence)];
    const int count = static_cast<int>(part.tokens.size());
    must(memory_->prepare(sequence, count, part.phase));
    const int first = static_cast<int>(batch.tokens.size());
    batch.tokens.insert(batch.tokens.end(), part.tokens.begin(), part.tokens.end());
    batch.rows.push_back({{sequence.row(), first, count, part.phase},
                          sequence.cursor().committed,
                          sequence.pages(),
                          count});
  }
}

Status TinyModel::forward(const Batch& batch, std::span<float> logits) {
  return model_->forward(batch, memory_->views(), logits);
}

void TinyModel::advance(const Batch& batch, const std::vector<Part>& parts) {
  std::vector<RowTokens> rows;
  std::vector<int> accepted;
  for (const BatchRow& row : batch.rows) {
    rows.push_back(row.span);
    accepted.push_back(row.span.tokens);
  }
  AdvanceArgs args;
  args.geometry = model_->options().geometry;
  args.recurrence = model_->options().recurrence;
  args.cursors = memory_->views().cursors;
  args.rows = rows;
  args.accepted = accepted;
  must(ops_->advance(args));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    memory_->settle(sequences_[static_cast<std::size_t>(parts[i].sequence)], accepted[i],
                    accepted[i], parts[i].phase);
  }
}

std::vector<float> TinyModel::step(const std::vector<Part>& parts) {
  Batch batch;
  prepare(parts, batch);
  std::vector<float> logits(batch.tokens.size() *
                            static_cast<std::size_t>(model_->config().vocab_rows));
  must(forward(batch, logits));
  advance(batch, parts);
  return logits;
}

}  // namespace replayssm
