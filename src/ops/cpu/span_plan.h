// What a step does to one row, as a list: which records are folded into which state, and which
// tokens are evaluated against which state. The same for every head of the row.
#pragma once

#include <array>

#include "ops/check_arguments.h"
#include "replay/cursor.h"
#include "replay/pieces.h"

namespace replayssm::cpu {

// Tokens of a span: a chunk is worked through in spans of at most so many.
inline constexpr int kSpanTokens = 64;
// Records that a span may have to look at: those pending before it (at most 32 + 16 - 1) and its
// own.
inline constexpr int kSpanRecords = 128;

// Where a state lies while a span is worked through.
enum class Place { zero, base, home, scratch };

// Records and tokens are numbered from the checkpoint that the span starts from: record j is that
// of position checkpoint + j, token i the record pending + i.
struct SpanAction {
  enum class Kind { fold, evaluate };
  Kind kind = Kind::fold;
  int first = 0;    // fold: first record; evaluate: first token of the span
  int count = 0;    // records, tokens
  int history = 0;  // evaluate: records [first + pending - history, ...) precede the first token
  int weights = 0;  // fold: where its decayed keys begin, in records of all folds of the span
  Place source = Place::zero;
  Place destination = Place::scratch;  // fold only
};

struct SpanPlan {
  Depth checkpoint;  // depth that record 0 follows
  int pending = 0;   // records before the span's first token
  int tokens = 0;
  int first_token = 0;  // in the packed arrays
  int keep_from = 0;    // tokens of the span from here on leave records in the ring
  int folded = 0;       // records of all folds together
  int actions = 0;
  std::array<SpanAction, 2 * kSpanTokens + 4> action;
};

// Walks a row's tokens: plan() describes the next span, until it returns false.
class SpanWalk {
 public:
  SpanWalk(const RowTokens& row, const Cursor& cursor, const FoldGeometry& geometry, StepKind kind);

  bool next(SpanPlan& plan);

 private:
  void add_fold(SpanPlan& plan, Depth from) const;

  Cursor cursor_;
  FoldGeometry geometry_;
  StepKind kind_;
  int first_token_;
  int left_;
  Place checkpoint_place_;
};

}  // namespace replayssm::cpu
