#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "replay/cursor.h"
#include "replay/geometry.h"

namespace replayssm {
namespace {

const std::vector<int> kFoldBlocks = {1, 8, 16, 32};

TEST(FoldGeometry, AcceptsExactlyTheDocumentedBlocksAndWindows) {
  for (int block = -1; block <= 70; ++block) {
    const bool block_ok = block == 1 || block == 8 || block == 16 || block == 32;
    for (int window = -1; window <= 40; ++window) {
      const bool ok = block_ok && window >= 1 && window <= std::min(block, 16);
      EXPECT_EQ(FoldGeometry::make(block, window).ok(), ok) << block << " " << window;
    }
  }
}

TEST(FoldGeometry, RefusalNamesFlagValueAndWhatIsAccepted) {
  const auto block = FoldGeometry::make(24, 4);
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.error().message,
            "--linear-replayssm-cache-len: 24 is not accepted; expected 8, 16 or 32");
  const auto window = FoldGeometry::make(8, 9);
  ASSERT_FALSE(window.ok());
  EXPECT_EQ(window.error().message,
            "--speculative-num-draft-tokens: 9 is not accepted; expected 1 to 8 with a fold block "
            "of 8");
}

TEST(FoldGeometry, RingIsTheSmallestPowerOfTwoThatTheBoundAllows) {
  for (int block : kFoldBlocks) {
    for (int window = 1; window <= std::min(block, 16); ++window) {
      const auto shared = FoldGeometry::make(block, window, RingAccess::shared).value();
      const auto staged = FoldGeometry::make(block, window, RingAccess::staged).value();
      for (const auto& [geometry, need] :
           {std::pair{shared, block + 2 * window - 1}, std::pair{staged, block + window - 1}}) {
        EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(geometry.ring_rows())));
        EXPECT_GE(geometry.ring_rows(), need);
        EXPECT_LT(geometry.ring_rows() / 2, need);
      }
      EXPECT_EQ(shared.conv_rows(), 2 * window + 4);
    }
  }
}

TEST(FoldGeometry, RestingCheckpointLeavesOneToLPending) {
  for (int block : kFoldBlocks) {
    const auto geometry = FoldGeometry::make(block, 1).value();
    EXPECT_EQ(geometry.resting_checkpoint(Depth{0}), Depth{0});
    for (int t = 1; t < 200; ++t) {
      const Depth c = geometry.resting_checkpoint(Depth{t});
      EXPECT_EQ(c.tokens, block * ((t - 1) / block));
      EXPECT_GE(t - c.tokens, 1);
      EXPECT_LE(t - c.tokens, block);
    }
  }
}

// Plays every sequence of accept counts up to a length, over every geometry, against a model that
// knows which position each ring row holds. This is the overwrite rule: what a step reads is what
// was committed, and what it appends overwrites nothing that it or the next steps read.
class RingModel {
 public:
  explicit RingModel(const FoldGeometry& geometry)
      : geometry_(geometry),
        record_(static_cast<std::size_t>(geometry.ring_rows()), -1),
        conv_(static_cast<std::size_t>(geometry.conv_rows()), -1) {}

  // A window of n tokens; `appends_before_fold` models another block of the grid that has already
  // appended its rows when this one folds.
  void window(int n, int accepted, bool appends_before_fold) {
    const int blocks = blocks_folded_by_window(cursor_, geometry_);
    if (appends_before_fold) append(n);
    if (blocks != 0) {
      const Depth end = cursor_.checkpoint + geometry_.fold_block();
      expect_records(cursor_.checkpoint, end);
      if (!appends_before_fold) expect_conv(end - 3, end);
    }
    const Depth live = cursor_.checkpoint + blocks * geometry_.fold_block();
    expect_records(live, cursor_.committed);
    if (!appends_before_fold) {
      expect_conv(cursor_.committed - 3, cursor_.committed);
      append(n);
    }
    cursor_ = advanced(cursor_, blocks, accepted, geometry_);
    ASSERT_EQ(cursor_.checkpoint.tokens % geometry_.fold_block(), 0);
    ASSERT_GE(cursor_.pending(), 0);
    ASSERT_LE(cursor_.pending(), geometry_.pending_max());
    expect_records(cursor_.checkpoint, cursor_.committed);
    expect_conv(cursor_.committed - 4, cursor_.committed);  // what a cache entry keeps
  }

  const Cursor& cursor() const { return cursor_; }

 private:
  void append(int n) {
    for (int s = 0; s < n; ++s) {
      const Depth position = cursor_.committed + s;
      record_[static_cast<std::size_t>(geometry_.ring_row(position))] = position.tokens;
      conv_[static_cast<std::size_t>(geometry_.conv_row(position))] = position.tokens;
    }
  }
  void expect_records(Depth from, Depth to) {
    for (Depth i = from; i < to; i += 1) {
      ASSERT_EQ(record_[static_cast<std::size_t>(geometry_.ring_row(i))], i.tokens);
    }
  }
  void expect_conv(Depth from, Depth to) {
    for (Depth i = from; i < to; i += 1) {
      if (i.tokens < 0) continue;  // zero history
      ASSERT_EQ(conv_[static_cast<std::size_t>(geometry_.conv_row(i))], i.tokens);
    }
  }

  FoldGeometry geometry_;
  Cursor cursor_;
  std::vector<int> record_;
  std::vector<int> conv_;
};

// Every accept count at every reachable pending count: a walk of random-looking but fixed accepts
// visits them; reachability is checked so that the test cannot quietly cover less.
void play(RingAccess access, bool appends_before_fold) {
  for (int block : kFoldBlocks) {
    for (int window = 1; window <= std::min(block, 16); ++window) {
      const auto geometry = FoldGeometry::make(block, window, access).value();
      std::vector<std::vector<bool>> seen(
          static_cast<std::size_t>(geometry.pending_max()) + 1,
          std::vector<bool>(static_cast<std::size_t>(window) + 1, false));
      RingModel model(geometry);
      std::uint32_t random = 1;
      for (int step = 0; step < 200 * block; ++step) {
        random = random * 1664525u + 1013904223u;
        const int n = 1 + static_cast<int>((random >> 8) % static_cast<unsigned>(window));
        const int accepted = 1 + static_cast<int>((random >> 20) % static_cast<unsigned>(n));
        seen[static_cast<std::size_t>(model.cursor().pending())]
            [static_cast<std::size_t>(accepted)] = true;
        ASSERT_NO_FATAL_FAILURE(model.window(n, accepted, appends_before_fold))
            << "L " << block << " T " << window << " step " << step;
      }
      for (int p = 1; p < geometry.fold_block(); ++p) {
        EXPECT_TRUE(seen[static_cast<std::size_t>(p)][1]) << "L " << block << " T " << window;
      }
    }
  }
}

TEST(RingOverwrite, SharedRingKeepsEveryRecordWhileASiblingHasAlreadyAppended) {
  play(RingAccess::shared, true);
}

TEST(RingOverwrite, StagedRingKeepsEveryRecordWhenReadsComeBeforeAppends) {
  play(RingAccess::staged, false);
}

}  // namespace
}  // namespace replayssm
