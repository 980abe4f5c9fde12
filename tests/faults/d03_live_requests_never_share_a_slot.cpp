// Fault D03 (kekzl/imp#500): slot = request id modulo capacity, so a request that lives long meets
// a later one on its slot.
#include <gtest/gtest.h>

#include <set>

#include "cache/id_pool.h"
#include "small_engine.h"

namespace replayssm {
namespace {

TEST(D03, ALongLivedRequestKeepsItsSlotWhileFourTimesTheCapacityPassBy) {
  const EngineOptions options = small_options();  // capacity 4
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  const auto first = random_prompt(*engine, 10, 0);
  ASSERT_TRUE(scheduler.submit({first, greedy(), 200, true}).ok());
  for (unsigned i = 1; i <= 16; ++i) {
    ASSERT_TRUE(scheduler.submit({random_prompt(*engine, 10, i), greedy(), 9, true}).ok());
  }
  const auto finished = run_all(scheduler);
  EXPECT_EQ(finished.front().output, solo(options, first, 200));
}

TEST(D03, SlotsAndRowsOfLiveSequencesAreDistinct) {
  const auto engine = make_engine(small_options());
  std::vector<Sequence> live;
  for (unsigned round = 0; round < 20; ++round) {
    if (live.size() == 4) live.erase(live.begin() + round % 3 + 1);  // the first one stays
    live.push_back(engine->admit({1, 2, 3}, greedy()).value());
    std::set<int> slots;
    std::set<int> rows;
    for (const Sequence& sequence : live) {
      slots.insert(sequence.memory.base().value);
      rows.insert(sequence.memory.row().value);
    }
    EXPECT_EQ(slots.size(), live.size());
    EXPECT_EQ(rows.size(), live.size());
  }
}

TEST(D03, ADoubleFreeIsRefusedAndHandsNothingOutTwice) {
  IdPool<SlotId> pool("state slot", 4);
  const SlotId slot = pool.allocate().value();
  EXPECT_TRUE(pool.release(slot).ok());
  EXPECT_FALSE(pool.release(slot).ok());
  std::set<int> seen;
  while (const auto next = pool.allocate()) seen.insert(next->value);
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(pool.free(), 0);
}

}  // namespace
}  // namespace replayssm
