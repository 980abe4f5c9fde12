#include "spec/mtp_drafter.h"

#include <algorithm>

namespace replayssm {
namespace {

std::size_t widest(const MtpDrafter::Sizes& sizes) {
  return static_cast<std::size_t>(std::max(sizes.step_tokens, sizes.rows));
}

// The hidden state before the token at `position`, if the sequence has it.
const float* hidden_before(const DraftedSequence& sequence, int position) {
  const DrafterMemory& memory = *sequence.memory;
  return memory.position == position - 1 && !memory.features.empty() ? memory.features.data()
                                                                     : nullptr;
}

}  // namespace

MtpDrafter::MtpDrafter(DraftHead& head, const KvView& kv, const ModelConfig& config,
                       const Sizes& sizes, bool sampled)
    : head_(head),
      kv_(kv),
      width_(static_cast<std::size_t>(config.hidden_size)),
      vocab_size_(static_cast<std::size_t>(config.vocab_size)),
      vocab_rows_(static_cast<std::size_t>(config.vocab_rows)),
      sizes_(sizes),
      chooser_(sampled),
      hidden_(widest(sizes) * width_),
      logits_(static_cast<std::size_t>(sizes.rows) * vocab_rows_) {}

std::int64_t MtpDrafter::bytes(const ModelConfig& config, const Sizes& sizes) {
  const std::int64_t elements = static_cast<std::int64_t>(widest(sizes)) * config.hidden_size +
                                std::int64_t{sizes.rows} * config.vocab_rows;
  return elements * static_cast<std::int64_t>(sizeof(float));
}

void MtpDrafter::add_row(const DraftedSequence& sequence, int first, int count, bool logits) {
  rows_.push_back({Depth{first}, static_cast<int>(tokens_.size()), count, sequence.pages, logits});
}

// Null: zeros.
void MtpDrafter::add_token(TokenId token, const float* hidden) {
  float* to = hidden_.data() + tokens_.size() * width_;
  tokens_.push_back(token);
  if (hidden == nullptr) {
    std::fill_n(to, width_, 0.0f);
  } else {
    std::copy_n(hidden, width_, to);
  }
}

Status MtpDrafter::run(int logit_rows, bool pick_best) {
  if (pick_best) {
    best_.resize(static_cast<std::size_t>(logit_rows));
    return head_.draft_best(tokens_, rows_, kv_, hidden_.span().first(tokens_.size() * width_),
                            best_);
  }
  return head_.draft(tokens_, rows_, kv_, hidden_.span().first(tokens_.size() * width_),
                     logits_.span().first(static_cast<std::size_t>(logit_rows) * vocab_rows_));
}

Status MtpDrafter::observe(std::span<const CommittedTokens> rows) {
  tokens_.clear();
  rows_.clear();
  for (const CommittedTokens& row : rows) {
    // Before position 0 there is no hidden state: that token has no row.
    const int skipped = row.first == 0 ? 1 : 0;
    if (row.count > skipped) {
      add_row(row.sequence, row.first + skipped, row.count - skipped, false);
    }
    for (int i = skipped; i < row.count; ++i) {
      const float* hidden = i == 0 ? hidden_before(row.sequence, row.first)
                                   : row.features + static_cast<std::size_t>(i - 1) * width_;
      add_token(row.sequence.tokens[static_cast<std::size_t>(row.first + i)], hidden);
    }
  }
  REPLAYSSM_TRY(run(0, false));
  for (const CommittedTokens& row : rows) {
    const float* last = row.features + static_cast<std::size_t>(row.count - 1) * width_;
    row.sequence.memory->features.assign(last, last + width_);
    row.sequence.memory->position = row.first + row.count - 1;
  }
  return {};
}

Status MtpDrafter::propose(std::span<DraftRequest> rows) {
  open_.clear();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].most > 0) open_.push_back(r);
  }
  tokens_.clear();
  for (const std::size_t r : open_) {
    const DraftedSequence& sequence = rows[r].sequence;
    add_token(sequence.tokens.back(), hidden_before(sequence, sequence.committed()));
  }
  const bool pick_best = head_.picks_best() &&
                         std::none_of(rows.begin(), rows.end(),
                                      [&](const DraftRequest& row) { return chooser_.draws(row); });
  for (int draft = 0; !open_.empty(); ++draft) {
    rows_.clear();
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const DraftedSequence& sequence = rows[open_[i]].sequence;
      rows_.push_back(
          {Depth{sequence.committed() + draft}, static_cast<int>(i), 1, sequence.pages, true});
    }
    REPLAYSSM_TRY(run(static_cast<int>(open_.size()), pick_best));
    // Those that go on move up, with the head's output as the hidden state before the draft.
    std::size_t kept = 0;
    tokens_.clear();
    for (std::size_t i = 0; i < open_.size(); ++i) {
      DraftRequest& request = rows[open_[i]];
      const bool chosen =
          pick_best
              ? DraftChooser::choose(request, best_[i])
              : chooser_.choose(request, logits_.span().subspan(i * vocab_rows_, vocab_size_));
      if (!chosen) continue;
      if (static_cast<int>(request.drafts.size()) == std::min(request.most, sizes_.most_drafts)) {
        continue;
      }
      add_token(request.drafts.back().token, hidden_.data() + i * width_);
      open_[kept++] = open_[i];
    }
    open_.resize(kept);
  }
  return {};
}

}  // namespace replayssm
