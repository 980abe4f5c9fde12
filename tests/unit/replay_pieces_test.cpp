#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "replay/pieces.h"
#include "replay/traffic.h"

namespace replayssm {
namespace {

const std::vector<int> kFoldBlocks = {1, 8, 16, 32};

// Every cursor that can occur between steps with t <= 3 L, for windows of at most window_max.
std::vector<Cursor> cursors(const FoldGeometry& geometry) {
  std::vector<Cursor> all;
  for (int t = 0; t <= 3 * geometry.fold_block(); ++t) {
    for (int c = 0; c <= t; c += geometry.fold_block()) {
      if (t - c <= geometry.pending_max()) all.push_back({Depth{t}, Depth{c}});
    }
  }
  return all;
}

TEST(Pieces, EachPositionIsComputedFromItsOwnCheckpointOnce) {
  for (int block : kFoldBlocks) {
    const auto geometry = FoldGeometry::make(block, std::min(block, 16)).value();
    for (const Cursor& cursor : cursors(geometry)) {
      for (int n = 0; n <= 3 * block + 2; ++n) {
        int covered = 0;
        Depth state = cursor.checkpoint;
        for_each_piece(
            cursor, n, geometry,
            [&](Depth from) {
              ASSERT_EQ(from, state);
              // Only complete blocks of records that exist by now are folded.
              ASSERT_LE((from + block).tokens, (cursor.committed + covered).tokens);
              state += block;
            },
            [&](const Piece& piece) {
              ASSERT_GT(piece.tokens, 0);
              ASSERT_EQ(piece.first_token, covered);
              ASSERT_EQ(piece.checkpoint, state);
              for (int s = 0; s < piece.tokens; ++s) {
                const Depth position = cursor.committed + covered + s;
                ASSERT_EQ(geometry.checkpoint_of(position), state);
                ASSERT_EQ(position - state, piece.history + s);
              }
              covered += piece.tokens;
            });
        EXPECT_EQ(covered, n);
      }
    }
  }
}

TEST(Pieces, AWindowFoldsAtMostOneBlockOnReadAndOneInScratch) {
  for (int block : {8, 16, 32}) {
    const auto geometry = FoldGeometry::make(block, std::min(block, 16)).value();
    for (const Cursor& cursor : cursors(geometry)) {
      for (int n = 1; n <= geometry.window_max(); ++n) {
        int folds = 0;
        int pieces = 0;
        bool first_is_fold = false;
        for_each_piece(
            cursor, n, geometry,
            [&](Depth) {
              first_is_fold = first_is_fold || (pieces == 0);
              ++folds;
            },
            [&](const Piece&) { ++pieces; });
        EXPECT_EQ(first_is_fold, fold_due(cursor, geometry));
        EXPECT_LE(folds - blocks_folded_by_window(cursor, geometry), 1);
        EXPECT_LE(pieces, 2);
      }
    }
  }
}

TEST(Cursor, AnySplitIntoWindowsAndChunksEndsAtRest) {
  for (int block : kFoldBlocks) {
    const auto geometry = FoldGeometry::make(block, 1).value();
    for (int total = 1; total <= 4 * block + 3; ++total) {
      for (int split = 0; split <= total; ++split) {
        Cursor cursor;
        if (split > 0) {
          cursor =
              advanced(cursor, blocks_folded_by_chunk(cursor, split, geometry), split, geometry);
        }
        while (cursor.committed.tokens < total) {
          cursor = advanced(cursor, blocks_folded_by_window(cursor, geometry), 1, geometry);
        }
        EXPECT_EQ(cursor.checkpoint, geometry.resting_checkpoint(Depth{total}));
      }
    }
  }
}

TEST(Cursor, AChunkFoldsWhatItsPiecesFoldOrLeavesOneBlockPending) {
  for (int block : kFoldBlocks) {
    const auto geometry = FoldGeometry::make(block, std::min(block, 16)).value();
    for (const Cursor& cursor : cursors(geometry)) {
      for (int n = 1; n <= 4 * block + 1; ++n) {
        int folds = 0;
        for_each_piece(
            cursor, n, geometry, [&](Depth) { ++folds; }, [](const Piece&) {});
        EXPECT_EQ(folds, blocks_folded_by_chunk(cursor, n, geometry));
      }
    }
  }
}

TEST(Traffic, ReplayWritesTheStateOncePerBlockWherePackedWritesItEveryToken) {
  const auto geometry = FoldGeometry::make(16, 1).value();
  Cursor cursor;
  StateTraffic replay;
  StateTraffic packed;
  for (int t = 0; t < 1600; ++t) {
    replay += window_traffic(cursor, geometry);
    packed += packed_traffic(cursor.committed);
    cursor = advanced(cursor, blocks_folded_by_window(cursor, geometry), 1, geometry);
  }
  EXPECT_EQ(replay.writes, 99);  // at rest the last full block is still in the ring
  EXPECT_EQ(replay.folds, 99);
  EXPECT_EQ(packed.writes, 1600);
  EXPECT_EQ(packed.reads, 1599);
  EXPECT_LE(replay.reads, packed.reads);
}

}  // namespace
}  // namespace replayssm
