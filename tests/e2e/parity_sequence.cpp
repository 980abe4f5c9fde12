#include "e2e/parity_sequence.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace replayssm {
namespace {

constexpr int kMostTokens = 128;

void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

SequenceLayout layout_of(const ModelConfig& config, const ModelOptions& options, DType state_type) {
  SequenceLayout layout;
  layout.linear_layers = config.count(LayerKind::linear);
  layout.attention_layers = config.count(LayerKind::attention);
  layout.heads = config.linear;
  layout.kv_heads = config.attention.kv_heads;
  layout.head_dim = config.attention.head_dim;
  layout.geometry = options.geometry;
  layout.recurrence = options.recurrence;
  layout.activation_type = options.activations;
  layout.state_type = layout.correction_type = state_type;
  return layout;
}

}  // namespace

ParitySequence::ParitySequence(const std::filesystem::path& checkpoint, const ModelOptions& options,
                               DeviceKind device, DType state_type, int threads)
    : pool_(threads), device_(must(make_device(device, pool_))), ops_(&device_->ops()) {
  ModelSizes most;
  most.rows = 1;
  most.logit_rows = kMostTokens;
  model_ = must(device_->load_model(checkpoint, options, most));
  const SequenceLayout layout = layout_of(model_->config(), options, state_type);
  PoolSizes sizes;
  sizes.pages = layout.pages_for(kMostTokens);
  memory_ = must(SequenceMemory::make(layout, sizes, device_->memory(), Poison::on));
  sequence_ = must(memory_->admit());
  model_->observe([this](std::string_view name, std::span<const float> values) {
    std::vector<float>& all = observed_[std::string(name)];
    all.insert(all.end(), values.begin(), values.end());
  });
}

std::vector<float> ParitySequence::prefill(std::span<const TokenId> tokens) {
  return step(tokens, Phase::prefill);
}

std::vector<float> ParitySequence::decode(TokenId token) {
  return step({&token, 1}, Phase::decode);
}

std::vector<float> ParitySequence::step(std::span<const TokenId> tokens, Phase phase) {
  const int count = static_cast<int>(tokens.size());
  must(memory_->prepare(sequence_, count, phase));
  Batch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  const RowTokens span{sequence_.row(), 0, count, phase};
  batch.rows.push_back({span, sequence_.cursor().committed, sequence_.pages(), count});
  const auto rows = static_cast<std::size_t>(config().vocab_rows);
  const auto real = static_cast<std::size_t>(config().vocab_size);
  std::vector<float> padded(tokens.size() * rows);
  must(model_->forward(batch, memory_->views(), padded));

  AdvanceArgs advance;
  advance.geometry = model_->options().geometry;
  advance.recurrence = model_->options().recurrence;
  advance.cursors = memory_->views().cursors;
  advance.rows = {&span, 1};
  advance.accepted = {&count, 1};
  must(ops_->advance(advance));
  memory_->settle(sequence_, count, count, phase);

  std::vector<float> logits;
  for (std::size_t token = 0; token < tokens.size(); ++token) {
    const auto row = std::span(padded).subspan(token * rows, rows);
    logits.insert(logits.end(), row.begin(), row.begin() + real);
    if (std::any_of(row.begin() + real, row.end(),
                    [](float x) { return x != -std::numeric_limits<float>::infinity(); })) {
      throw std::runtime_error("a padded row of the vocabulary can be chosen");
    }
  }
  return logits;
}

std::vector<float> ParitySequence::state(int linear_layer) {
  const SequenceViews& views = memory_->views();
  const HeadShape shape = config().linear;
  if (model_->options().recurrence == Recurrence::packed) {
    std::vector<float> state(shape.state_elements());
    must(ops_->export_state(shape, views.states[linear_layer], sequence_.base(), state));
    return state;
  }
  std::vector<float> states(shape.state_elements() * views.states.size());
  FoldRow row;
  row.row = sequence_.row();
  row.from = sequence_.cursor().checkpoint;
  row.records = sequence_.cursor().pending();
  row.source = sequence_.base();
  row.buffer = states;
  FoldArgs fold;
  fold.shape = shape;
  fold.geometry = model_->options().geometry;
  fold.states = views.states;
  fold.rings = views.rings;
  fold.rows = {&row, 1};
  must(ops_->fold(fold));
  const auto begin =
      states.begin() + static_cast<std::ptrdiff_t>(shape.state_elements()) * linear_layer;
  return {begin, begin + static_cast<std::ptrdiff_t>(shape.state_elements())};
}

}  // namespace replayssm
