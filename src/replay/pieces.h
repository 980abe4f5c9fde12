// Exact semantics: the result at position i is computed from the checkpoint at depth
// L * floor(i / L) and the records from there to i - 1. A span of tokens is therefore evaluated in
// pieces that end at multiples of L, with one block folded between two pieces.
#pragma once

#include <algorithm>

#include "replay/cursor.h"
#include "replay/geometry.h"

namespace replayssm {

// Tokens [first_token, first_token + tokens) of the span, all computed from one checkpoint.
struct Piece {
  Depth checkpoint;     // depth of the state they are computed from
  int history = 0;      // records between the checkpoint and the piece's first token
  int first_token = 0;  // offset in the span
  int tokens = 0;
};

// Calls, in order, for the n tokens that follow cursor.committed:
//   fold(Depth from)      fold the block of records [from, from + L) into the state at depth `from`
//   evaluate(Piece)       evaluate a piece against the state at piece.checkpoint
// A fold comes before the piece that needs it. The first fold, if cursor.pending() >= L, is the one
// that is due on read; the later ones cover tokens of the span itself.
// Precondition: cursor.pending() < 2 L, n >= 0.
template <class Fold, class Evaluate>
void for_each_piece(const Cursor& cursor, int n, const FoldGeometry& geometry, Fold&& fold,
                    Evaluate&& evaluate) {
  const int block = geometry.fold_block();
  Depth checkpoint = cursor.checkpoint;
  int done = 0;
  while (done < n) {
    const Depth position = cursor.committed + done;
    if (position - checkpoint >= block) {
      fold(checkpoint);
      checkpoint += block;
      continue;
    }
    const int tokens = std::min(n - done, checkpoint + block - position);
    evaluate(Piece{checkpoint, position - checkpoint, done, tokens});
    done += tokens;
  }
}

}  // namespace replayssm
