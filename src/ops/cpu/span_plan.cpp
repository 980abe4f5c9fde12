#include "ops/cpu/span_plan.h"

#include <algorithm>

namespace replayssm::cpu {
namespace {

// The packed step is the recurrence that folds after every token.
Cursor start_of(const Cursor& cursor, StepKind kind) {
  return kind == StepKind::packed ? Cursor{cursor.committed, cursor.committed} : cursor;
}

FoldGeometry geometry_of(const FoldGeometry& geometry, StepKind kind) {
  return kind == StepKind::packed ? FoldGeometry::make(1, 1).value() : geometry;
}

}  // namespace

SpanWalk::SpanWalk(const RowTokens& row, const Cursor& cursor, const FoldGeometry& geometry,
                   StepKind kind)
    : cursor_(start_of(cursor, kind)),
      geometry_(geometry_of(geometry, kind)),
      kind_(kind),
      first_token_(row.first_token),
      left_(row.tokens),
      checkpoint_place_(cursor_.checkpoint.tokens == 0 ? Place::zero : Place::base) {}

void SpanWalk::add_fold(SpanPlan& plan, Depth from) const {
  SpanAction& fold = plan.action[plan.actions++];
  fold = SpanAction{};
  fold.first = from - plan.checkpoint;
  fold.count = geometry_.fold_block();
  fold.weights = plan.folded;
  plan.folded += fold.count;
}

bool SpanWalk::next(SpanPlan& plan) {
  if (left_ == 0) return false;
  const int block = geometry_.fold_block();
  // Spans end at multiples of the block, so that a later one has no history to carry over.
  const int most = kSpanTokens - cursor_.committed.tokens % block;
  const int tokens = std::min(left_, most);
  const bool last = tokens == left_;

  plan.checkpoint = cursor_.checkpoint;
  plan.pending = cursor_.pending();
  plan.tokens = tokens;
  plan.first_token = first_token_;
  plan.folded = 0;
  plan.actions = 0;
  Depth folded_to = cursor_.checkpoint;
  for_each_piece(
      cursor_, tokens, geometry_,
      [&](Depth from) {
        add_fold(plan, from);
        folded_to = from + block;
      },
      [&](const Piece& piece) {
        SpanAction& evaluate = plan.action[plan.actions++];
        evaluate = SpanAction{};
        evaluate.kind = SpanAction::Kind::evaluate;
        evaluate.first = piece.first_token;
        evaluate.count = piece.tokens;
        evaluate.history = piece.history;
      });
  const Depth end = cursor_.committed + tokens;
  if (kind_ == StepKind::packed || !last) {
    while (end - folded_to >= block) {
      add_fold(plan, folded_to);
      folded_to += block;
    }
  }

  // States live in scratch between folds; what is kept goes to home. A window keeps the fold that
  // was due when it began, a chunk the newest.
  int kept = -1;
  for (int a = 0; a < plan.actions; ++a) {
    if (plan.action[a].kind != SpanAction::Kind::fold) continue;
    if (kind_ == StepKind::window && (plan.action[a].first != 0 || !fold_due(cursor_, geometry_))) {
      continue;
    }
    kept = a;
  }
  Place place = checkpoint_place_;
  for (int a = 0; a < plan.actions; ++a) {
    SpanAction& action = plan.action[a];
    action.source = place;
    if (action.kind != SpanAction::Kind::fold) continue;
    action.destination = a == kept ? Place::home : Place::scratch;
    place = action.destination;
  }

  plan.keep_from = kind_ == StepKind::window ? 0 : std::max(0, folded_to - cursor_.committed);
  if (!last || kind_ == StepKind::packed) plan.keep_from = tokens;
  cursor_ = Cursor{end, folded_to};
  checkpoint_place_ = place;
  first_token_ += tokens;
  left_ -= tokens;
  return true;
}

}  // namespace replayssm::cpu
