// The state is rebuilt from the checkpoint and the records, then stepped: the plainest form. With
// nothing rounded, folding a block and applying its records one by one is the same arithmetic.
#include <algorithm>

#include "ops/reference/head_memory.h"
#include "ops/reference/ops.h"
#include "replay/cursor.h"

namespace replayssm::reference {
namespace {

// The corrected values [tokens][V] of one value head.
using Corrections = std::vector<std::vector<double>>;

// Evaluates a row's tokens for one value head and writes the state of depth `home_depth` to its
// home slot if that lies above the checkpoint.
Corrections evaluate(const StepArgs& args, const RowTokens& row, int head, Depth home_depth) {
  const std::int32_t at = row.row.value;
  const Depth checkpoint = args.cursors.checkpoint[at];
  const Depth committed = args.cursors.committed[at];
  HeadState state = checkpoint.tokens == 0
                        ? zero_state()
                        : load(args.shape, args.states, args.cursors.base[at], head);
  HeadState folded;
  Depth depth = checkpoint;
  for (; depth < committed; depth += 1) {
    add_record(state, record_of(args.shape, args.geometry, args.rings, row.row, depth, head));
    if (depth + 1 == home_depth) folded = state;
  }
  Corrections corrections;
  for (int i = 0; i < row.tokens; ++i, depth += 1) {
    const int token = row.first_token + i;
    float* out =
        args.out + (static_cast<std::size_t>(token) * args.shape.value_heads + head) * kValueDim;
    corrections.push_back(step(state, token_of(args, token, head, args.rings.key_type), out));
    if (depth + 1 == home_depth) folded = state;
  }
  if (!folded.empty()) store(args.shape, args.states, args.cursors.home[at], head, folded);
  return corrections;
}

// All value heads of a row; the records from depth `keep_from` on are appended once every head has
// read the ring, so that nothing pending is overwritten whatever the ring's size.
void evaluate_row(const StepArgs& args, const RowTokens& row, Depth home_depth, Depth keep_from) {
  std::vector<Corrections> heads;
  for (int head = 0; head < args.shape.value_heads; ++head) {
    heads.push_back(evaluate(args, row, head, home_depth));
  }
  const Depth committed = args.cursors.committed[row.row.value];
  for (int head = 0; head < args.shape.value_heads; ++head) {
    for (int i = std::max(0, keep_from - committed); i < row.tokens; ++i) {
      append(args, row.row, committed + i, row.first_token + i, head, heads[head][i]);
    }
  }
}

}  // namespace

void window_step(const StepArgs& args) {
  for (const RowTokens& row : args.rows) {
    const std::int32_t at = row.row.value;
    if (args.cursors.base[at] == kNullSlot) {
      zero_outputs(args, row);
      continue;
    }
    const Cursor cursor{args.cursors.committed[at], args.cursors.checkpoint[at]};
    const int blocks = blocks_folded_by_window(cursor, args.geometry);
    const Depth home_depth =
        blocks == 0 ? Depth{-1} : cursor.checkpoint + args.geometry.fold_block();
    evaluate_row(args, row, home_depth, cursor.committed);
  }
}

void chunk_prefill(const StepArgs& args) {
  for (const RowTokens& row : args.rows) {
    const std::int32_t at = row.row.value;
    if (args.cursors.base[at] == kNullSlot) {
      zero_outputs(args, row);
      continue;
    }
    const Cursor cursor{args.cursors.committed[at], args.cursors.checkpoint[at]};
    const int blocks = blocks_folded_by_chunk(cursor, row.tokens, args.geometry);
    const Depth end = cursor.checkpoint + blocks * args.geometry.fold_block();
    evaluate_row(args, row, blocks == 0 ? Depth{-1} : end, end);
  }
}

}  // namespace replayssm::reference
