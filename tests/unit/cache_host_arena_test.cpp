// Extents of host memory never overlap, come back, and grow together again.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cache/host_arena.h"
#include "slow_transfers.h"

namespace replayssm {
namespace {

constexpr std::int64_t kMost = 1 << 20;

TEST(HostArena, GivesAllThatItMayAndNothingBeyond) {
  HostArena arena(host_space(), kMost);
  EXPECT_EQ(arena.bytes(), 0);
  std::byte* const all = arena.allocate(kMost);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.bytes(), kMost);
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.release(all);
  EXPECT_EQ(arena.allocate(kMost + 1), nullptr);
  EXPECT_EQ(arena.allocate(kMost), all);
  EXPECT_EQ(arena.bytes(), kMost);
}

// Whatever is asked for then is there, and nothing is got when it is.
TEST(HostArena, ReservesEverythingInOnePiece) {
  HostArena arena(host_space(), kMost, kMost / 4);
  ASSERT_TRUE(arena.reserve().ok());
  EXPECT_EQ(arena.bytes(), kMost);
  std::byte* const large = arena.allocate(kMost / 2 + 1);
  ASSERT_NE(large, nullptr);
  EXPECT_NE(arena.allocate(kMost / 4), nullptr);
  EXPECT_EQ(arena.allocate(kMost / 2), nullptr);
  arena.release(large);
  EXPECT_EQ(arena.allocate(kMost / 2), large);
  ASSERT_TRUE(arena.reserve().ok());
  EXPECT_EQ(arena.bytes(), kMost);
}

// A device need not have that much in one piece: then it says so, and pieces do.
TEST(HostArena, SaysWhyNothingIsReservedAndGrowsByPieces) {
  SlowTransfers space;
  space.limit_outside(kMost / 2);
  HostArena arena(space, kMost, kMost / 4);
  const Status reserved = arena.reserve();
  ASSERT_FALSE(reserved.ok());
  EXPECT_NE(reserved.error().message.find(std::to_string(kMost)), std::string::npos);
  EXPECT_EQ(arena.bytes(), 0);
  EXPECT_NE(arena.allocate(kMost / 2), nullptr);
  EXPECT_NE(arena.allocate(kMost / 4), nullptr);
  EXPECT_EQ(arena.bytes(), kMost / 4 * 3);
}

TEST(HostArena, NeighbouringGapsBecomeOne) {
  for (const auto& order : {std::vector{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    HostArena arena(host_space(), kMost);
    std::vector<std::byte*> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(arena.allocate(kMost / 4));
    ASSERT_NE(parts.back(), nullptr);
    for (const int part : order) arena.release(parts[static_cast<std::size_t>(part)]);
    EXPECT_EQ(arena.allocate(kMost), nullptr);
    EXPECT_EQ(arena.allocate(kMost / 4 * 3), parts.front());
  }
}

// An extent larger than a piece, when all pieces were in use before: the empty ones make way.
TEST(HostArena, EmptyPiecesMakeWayForALargerOne) {
  HostArena arena(host_space(), kMost, kMost / 4);
  std::vector<std::byte*> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(arena.allocate(kMost / 4));
  ASSERT_NE(parts.back(), nullptr);
  EXPECT_EQ(arena.bytes(), kMost);
  EXPECT_EQ(arena.allocate(kMost / 2), nullptr);
  arena.release(parts[1]);
  EXPECT_EQ(arena.allocate(kMost / 2), nullptr);
  EXPECT_EQ(arena.bytes(), kMost);  // one alone would not do
  arena.release(parts[3]);
  std::byte* const large = arena.allocate(kMost / 2);
  ASSERT_NE(large, nullptr);
  std::fill_n(large, kMost / 2, std::byte{7});
  EXPECT_EQ(arena.bytes(), kMost);
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.release(parts[0]);
  EXPECT_EQ(arena.allocate(kMost / 4), parts[0]);
}

TEST(HostArena, KnowsWhatItCouldNeverHold) {
  HostArena arena(host_space(), 1000, 400);
  EXPECT_TRUE(arena.could_hold(768));
  EXPECT_FALSE(arena.could_hold(769));  // 1,024 with its alignment
  EXPECT_EQ(arena.allocate(769), nullptr);
  EXPECT_NE(arena.allocate(768), nullptr);
}

TEST(HostArena, ExtentsKeepWhatIsWrittenToThem) {
  HostArena arena(host_space(), kMost, kMost / 4);
  std::mt19937 random(1);
  std::vector<std::pair<std::byte*, std::size_t>> extents;
  const auto expect_kept = [&](std::size_t i) {
    const auto [data, bytes] = extents[i];
    EXPECT_TRUE(std::all_of(data, data + bytes, [&](std::byte b) { return b == *data; }));
  };
  int refused = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    const std::size_t bytes = 1 + random() % (kMost / 8);
    std::byte* const data = random() % 3 == 0 ? nullptr : arena.allocate(bytes);
    if (data != nullptr) {
      std::fill_n(data, bytes, static_cast<std::byte>(turn));
      extents.emplace_back(data, bytes);
    } else if (!extents.empty()) {
      ++refused;
      const std::size_t gone = random() % extents.size();
      expect_kept(gone);
      arena.release(extents[gone].first);
      extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(gone));
    }
  }
  EXPECT_GT(refused, 100);
  for (std::size_t i = 0; i < extents.size(); ++i) expect_kept(i);
  while (!extents.empty()) {
    arena.release(extents.back().first);
    extents.pop_back();
  }
  EXPECT_NE(arena.allocate(kMost), nullptr);
}

}  // namespace
}  // namespace replayssm
