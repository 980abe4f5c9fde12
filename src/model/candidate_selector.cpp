#include "model/candidate_selector.h"

#include <algorithm>
#include <numeric>

#include "model/embedding.h"

namespace replayssm {

CandidateSelector::CandidateSelector(BlockDraftModel& model, int rows)
    : model_(model),
      rank_(static_cast<std::size_t>(model.config().selector_rank)),
      top_(static_cast<std::size_t>(model.config().selector_top)),
      projected_(static_cast<std::size_t>(rows) * rank_),
      pair_(2 * rank_),
      likeliest_(static_cast<std::size_t>(rows) * top_),
      scored_(top_) {}

std::int64_t CandidateSelector::bytes(const BlockDraftConfig& config, int rows) {
  return (std::int64_t{rows} + 2) * config.selector_rank *
             static_cast<std::int64_t>(sizeof(float)) +
         (std::int64_t{rows} + 1) * config.selector_top *
             static_cast<std::int64_t>(sizeof(DraftCandidate));
}

void CandidateSelector::begin(std::span<const float> hidden, std::span<const float> logits) {
  const ModelConfig& decoder = model_.config().decoder;
  const std::size_t rows = hidden.size() / static_cast<std::size_t>(decoder.hidden_size);
  model_.step().project(
      hidden.data(), static_cast<int>(rows),
      DecoderStep::whole(model_.weights().selector->projection, projected_.data()), true);
  const auto stride = static_cast<std::size_t>(decoder.vocab_rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto real = logits.subspan(row * stride, static_cast<std::size_t>(decoder.vocab_size));
    take_likeliest(real, likeliest_.data() + row * top_);
  }
}

void CandidateSelector::take_likeliest(std::span<const float> logits, DraftCandidate* out) {
  const auto before = [](const DraftCandidate& a, const DraftCandidate& b) {
    return a.score > b.score || (a.score == b.score && a.token < b.token);
  };
  // A heap whose front is the worst of the best so far.
  std::size_t held = 0;
  for (std::size_t t = 0; t < logits.size(); ++t) {
    const DraftCandidate candidate{static_cast<TokenId>(t), logits[t]};
    if (held == top_) {
      if (!before(candidate, out[0])) continue;
      std::pop_heap(out, out + held, before);
      out[held - 1] = candidate;
    } else {
      out[held++] = candidate;
    }
    std::push_heap(out, out + held, before);
  }
  std::sort_heap(out, out + held, before);
  for (std::size_t c = 0; c < top_; ++c) out[c].score = model_.config().scaled_logit(out[c].score);
}

std::span<const DraftCandidate> CandidateSelector::after(TokenId before, std::size_t row) {
  const CandidateSelectorWeights& w = *model_.weights().selector;
  float* predecessor = pair_.data();
  float* successor = predecessor + rank_;
  embed(w.predecessors, before, DType::f32, predecessor);
  for (std::size_t r = 0; r < rank_; ++r) predecessor[r] *= projected_.data()[row * rank_ + r];
  for (std::size_t c = 0; c < top_; ++c) {
    const DraftCandidate& candidate = likeliest_.data()[row * top_ + c];
    embed(w.successors, candidate.token, DType::f32, successor);
    const double pair = std::inner_product(predecessor, predecessor + rank_, successor, 0.0);
    scored_[c] = {candidate.token, static_cast<float>(candidate.score + pair)};
  }
  return scored_;
}

}  // namespace replayssm
