// The choice of drafts among the most likely tokens of each row, by how well they follow each
// other. Source: DFlash2 (z-lab checkpoints, candidate_selector.*).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/block_draft_model.h"

namespace replayssm {

struct DraftCandidate {
  TokenId token = 0;
  float score = 0;
};

// edge[c] = val[c] + sum_r predecessors[token before][r] hid[r] successors[c][r], with val the
// target's logits of the row's most likely tokens (multiplied and capped as the configuration says)
// and hid the projection of its hidden state.
class CandidateSelector {
 public:
  // The model outlives it; at most so many rows at once.
  CandidateSelector(BlockDraftModel& model, int rows);

  // Takes up the rows that BlockDraftModel::run_blocks predicted.
  //   hidden [rows, hidden_size], logits [rows, vocab_rows]
  void begin(std::span<const float> hidden, std::span<const float> logits);

  // The candidates of a row, the likelier first and of equals the smaller id, with their scores
  // behind `before`. Valid until the next call.
  std::span<const DraftCandidate> after(TokenId before, std::size_t row);

  static std::int64_t bytes(const BlockDraftConfig& config, int rows);

 private:
  void take_likeliest(std::span<const float> logits, DraftCandidate* out);

  BlockDraftModel& model_;
  std::size_t rank_;
  std::size_t top_;
  AlignedBuffer<float> projected_;           // [rows, rank]
  AlignedBuffer<float> pair_;                // [2, rank]: predecessor times hid; successor
  AlignedBuffer<DraftCandidate> likeliest_;  // [rows, top]
  std::vector<DraftCandidate> scored_;       // [top]
};

}  // namespace replayssm
