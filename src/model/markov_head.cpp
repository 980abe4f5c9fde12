#include "model/markov_head.h"

#include <algorithm>
#include <cmath>

#include "model/embedding.h"

namespace replayssm {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

std::size_t count(int blocks) { return static_cast<std::size_t>(blocks); }

}  // namespace

MarkovHead::MarkovHead(BlockDraftModel& model, int blocks)
    : model_(model),
      rank_(static_cast<std::size_t>(model.config().markov_rank)),
      width_(static_cast<std::size_t>(model.config().decoder.hidden_size)),
      embedded_(count(blocks) * rank_),
      inputs_(count(blocks) * rank_),
      joined_(count(blocks) * (2 * rank_ + width_)),
      gates_(count(blocks) * 3 * rank_),
      state_(count(blocks) * rank_),
      bias_(rank_ == 0
                ? 0
                : count(blocks) * static_cast<std::size_t>(model.config().decoder.vocab_rows)) {}

std::int64_t MarkovHead::bytes(const BlockDraftConfig& config, int blocks) {
  const std::int64_t rank = config.markov_rank;
  const std::int64_t row = 8 * rank + config.decoder.hidden_size +
                           (rank == 0 ? 0 : std::int64_t{config.decoder.vocab_rows});
  return blocks * row * static_cast<std::int64_t>(sizeof(float));
}

void MarkovHead::begin(int blocks) {
  blocks_ = count(blocks);
  draft_ = 0;
  std::fill_n(state_.data(), blocks_ * rank_, 0.0f);
}

// Of the row that predicts the current draft.
const float* MarkovHead::hidden_of(std::span<const float> hidden, std::size_t block) const {
  const auto drafts = static_cast<std::size_t>(model_.config().drafts());
  return hidden.data() + (block * drafts + draft_) * width_;
}

void MarkovHead::next(std::span<const TokenId> before, std::span<const float> hidden,
                      std::span<float> logits, std::span<double> confidences) {
  if (rank_ > 0) {
    embed_before(before);
    switch (model_.config().markov) {
      case MarkovKind::none:
      case MarkovKind::vanilla:
        std::copy_n(embedded_.data(), blocks_ * rank_, inputs_.data());
        break;
      case MarkovKind::gated:
        apply_gate(hidden);
        break;
      case MarkovKind::rnn:
        apply_rnn(hidden);
        break;
    }
    add_bias(logits);
  }
  for (std::size_t b = 0; b < confidences.size(); ++b) confidences[b] = confidence(hidden, b);
  ++draft_;
}

void MarkovHead::embed_before(std::span<const TokenId> before) {
  for (std::size_t b = 0; b < blocks_; ++b) {
    embed(model_.weights().markov->embedding, before[b], DType::f32, embedded_.data() + b * rank_);
  }
}

void MarkovHead::apply_gate(std::span<const float> hidden) {
  const MarkovWeights& w = *model_.weights().markov;
  for (std::size_t b = 0; b < blocks_; ++b) {
    float* joined = joined_.data() + b * (width_ + rank_);
    std::copy_n(hidden_of(hidden, b), width_, joined);
    std::copy_n(embedded_.data() + b * rank_, rank_, joined + width_);
  }
  model_.step().project(joined_.data(), static_cast<int>(blocks_),
                        DecoderStep::whole(w.gate, gates_.data()), true);
  for (std::size_t i = 0; i < blocks_ * rank_; ++i) {
    inputs_.data()[i] = sigmoid(gates_.data()[i] + w.gate_bias[i % rank_]) * embedded_.data()[i];
  }
}

void MarkovHead::apply_rnn(std::span<const float> hidden) {
  const MarkovWeights& w = *model_.weights().markov;
  for (std::size_t b = 0; b < blocks_; ++b) {
    float* joined = joined_.data() + b * (2 * rank_ + width_);
    std::copy_n(state_.data() + b * rank_, rank_, joined);
    std::copy_n(embedded_.data() + b * rank_, rank_, joined + rank_);
    std::copy_n(hidden_of(hidden, b), width_, joined + 2 * rank_);
  }
  model_.step().project(joined_.data(), static_cast<int>(blocks_),
                        DecoderStep::whole(w.gate, gates_.data()), true);
  for (std::size_t b = 0; b < blocks_; ++b) {
    const float* gates = gates_.data() + b * 3 * rank_;
    for (std::size_t r = 0; r < rank_; ++r) {
      const float keep = sigmoid(gates[r] + w.gate_bias[r]);
      const float candidate = std::tanh(gates[rank_ + r] + w.gate_bias[rank_ + r]);
      float& state = state_.data()[b * rank_ + r];
      state = keep * state + (1.0f - keep) * candidate;
      inputs_.data()[b * rank_ + r] = std::tanh(gates[2 * rank_ + r] + w.gate_bias[2 * rank_ + r]);
    }
  }
}

void MarkovHead::add_bias(std::span<float> logits) {
  const ModelConfig& decoder = model_.config().decoder;
  const auto stride = static_cast<std::size_t>(decoder.vocab_rows);
  const auto drafts = static_cast<std::size_t>(model_.config().drafts());
  model_.step().project(inputs_.data(), static_cast<int>(blocks_),
                        {&model_.weights().markov->out, bias_.data(), stride, decoder.vocab_size},
                        true);
  for (std::size_t b = 0; b < blocks_; ++b) {
    float* row = logits.data() + (b * drafts + draft_) * stride;
    const float* bias = bias_.data() + b * stride;
    for (std::size_t t = 0; t < static_cast<std::size_t>(decoder.vocab_size); ++t)
      row[t] += bias[t];
  }
}

double MarkovHead::confidence(std::span<const float> hidden, std::size_t block) const {
  const ConfidenceWeights& w = *model_.weights().confidence;
  const float* h = hidden_of(hidden, block);
  double logit = w.bias;
  for (std::size_t i = 0; i < width_; ++i) logit += double{w.weight[i]} * h[i];
  for (std::size_t i = width_; i < w.weight.size(); ++i) {
    logit += double{w.weight[i]} * embedded_.data()[block * rank_ + i - width_];
  }
  const std::vector<double>& temperatures = model_.config().confidence_temperatures;
  return 1.0 / (1.0 + std::exp(-logit / (temperatures.empty() ? 1.0 : temperatures[draft_])));
}

}  // namespace replayssm
