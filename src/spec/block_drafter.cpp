#include "spec/block_drafter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace replayssm {
namespace {

// Logits of all drafts of a block are kept until they are chosen: more blocks together would cost
// more memory than they save time.
constexpr int kMostTogether = 16;

int pass_tokens(const BlockDraftConfig& config, int step_tokens) {
  return std::max(step_tokens, config.block);
}

int blocks_together(const BlockDraftConfig& config, const BlockDrafter::Sizes& sizes) {
  return std::min(
      {sizes.rows, kMostTogether, pass_tokens(config, sizes.step_tokens) / config.block});
}

ModelOptions drafter_options(ModelOptions options, const BlockDraftConfig& config,
                             int step_tokens) {
  options.max_step_tokens = pass_tokens(config, step_tokens);
  options.draft_head = false;
  return options;
}

std::size_t count(int n) { return static_cast<std::size_t>(n); }

}  // namespace

BlockDrafter::BlockDrafter(const BlockDraftConfig& config, BlockDraftWeights weights,
                           const Model& target, ModelOptions options, ThreadPool& pool,
                           LinearOps& ops, std::vector<KvView> kv, const Sizes& sizes, bool sampled)
    : weights_(std::move(weights)),
      model_(config, weights_, target, drafter_options(options, config, sizes.step_tokens), pool,
             ops),
      kv_(std::move(kv)),
      sizes_(sizes),
      together_(blocks_together(config, sizes)),
      chooser_(sampled),
      features_(count(sizes.step_tokens) * count(config.features()) *
                count(config.decoder.hidden_size)),
      hidden_(count(together_ * config.drafts()) * count(config.decoder.hidden_size)),
      logits_(count(together_ * config.drafts()) * count(config.decoder.vocab_rows)) {
  if (weights_.selector) selector_.emplace(model_, together_ * config.drafts());
  if (weights_.markov || weights_.confidence) markov_.emplace(model_, together_);
}

std::int64_t BlockDrafter::bytes(const BlockDraftConfig& config, const ModelOptions& options,
                                 int threads, const Sizes& sizes) {
  const int together = blocks_together(config, sizes);
  const int rows = together * config.drafts();
  const std::int64_t hidden = config.decoder.hidden_size;
  const std::int64_t floats = rows * (hidden + config.decoder.vocab_rows) +
                              std::int64_t{sizes.step_tokens} * config.features() * hidden;
  std::int64_t heads = 0;
  if (config.selector_rank > 0) heads += CandidateSelector::bytes(config, rows);
  if (config.has_dspark_heads()) heads += MarkovHead::bytes(config, together);
  return BlockDraftModel::bytes(config, drafter_options(options, config, sizes.step_tokens),
                                threads) +
         floats * static_cast<std::int64_t>(sizeof(float)) + heads;
}

Status BlockDrafter::observe(std::span<const CommittedTokens> rows) {
  context_.clear();
  const BlockDraftConfig& config = model_.config();
  const std::size_t width = count(config.features()) * count(config.decoder.hidden_size);
  std::size_t tokens = 0;
  for (const CommittedTokens& row : rows) {
    context_.push_back({Depth{row.first}, row.count, row.sequence.pages});
    std::copy_n(row.features, count(row.count) * width, features_.data() + tokens * width);
    tokens += count(row.count);
  }
  return model_.add_context(std::span(features_).first(tokens * width), context_, kv_);
}

Status BlockDrafter::propose(std::span<DraftRequest> rows) {
  wanted_.clear();
  for (DraftRequest& row : rows) {
    if (row.most > 0) wanted_.push_back(&row);
  }
  const std::span<DraftRequest* const> all = wanted_;
  for (std::size_t at = 0; at < all.size(); at += count(together_)) {
    REPLAYSSM_TRY(draft_blocks(all.subspan(at, std::min(count(together_), all.size() - at))));
  }
  return {};
}

Status BlockDrafter::draft_blocks(std::span<DraftRequest* const> requests) {
  const BlockDraftConfig& config = model_.config();
  const std::size_t drafts = count(config.drafts());
  const std::size_t stride = count(config.decoder.vocab_rows);
  blocks_.clear();
  before_.clear();
  int most = 0;
  for (const DraftRequest* request : requests) {
    const DraftedSequence& sequence = request->sequence;
    before_.push_back(sequence.tokens.back());
    blocks_.push_back({before_.back(), Depth{sequence.committed()}, sequence.pages});
    most = std::max(most, std::min(request->most, sizes_.most_drafts));
  }
  const auto hidden =
      hidden_.span().first(requests.size() * drafts * count(config.decoder.hidden_size));
  const auto logits = logits_.span().first(requests.size() * drafts * stride);
  REPLAYSSM_TRY(model_.run_blocks(blocks_, kv_, hidden, logits));
  if (selector_) selector_->begin(hidden, logits);
  if (markov_) markov_->begin(static_cast<int>(requests.size()));
  confidences_.assign(has_confidence() ? requests.size() : 0, 0.0);
  for (std::size_t k = 0; k < count(most); ++k) {
    if (markov_) markov_->next(before_, hidden, logits, confidences_);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      DraftRequest& request = *requests[i];
      // Ends where it has enough, or where a draft of it could not be made.
      if (request.drafts.size() != k || static_cast<int>(k) >= request.most) continue;
      const std::size_t row = i * drafts + k;
      const bool chosen =
          selector_ ? chooser_.choose(request, selector_->after(before_[i], row))
                    : chooser_.choose(
                          request, logits.subspan(row * stride, count(config.decoder.vocab_size)));
      if (!chosen) continue;
      if (has_confidence()) request.drafts.back().confidence = confidences_[i];
      before_[i] = request.drafts.back().token;
    }
  }
  return {};
}

}  // namespace replayssm
