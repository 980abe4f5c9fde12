// Who gets memory that a transfer takes part in, and what waits for what. The transfers take place
// when the test says so.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cache/parked_sequence.h"
#include "cache/sequence_image.h"
#include "slow_transfers.h"
#include "small_layout.h"

namespace replayssm {
namespace {

class CacheTransfers : public testing::Test {
 protected:
  void make(const PoolSizes& sizes) { memory_.emplace(small_layout(), sizes, space_); }
  // To the host, and out of the pools.
  ParkedSequence park(Residence sequence) {
    return std::move(**ParkedSequence::park(*memory_, sequence, arena_));
  }
  void let_all_take_place() {
    for (std::int64_t i = space_.transfers(); i > 0; --i) space_.progress();
  }
  // Different bytes in all that the sequence holds.
  void write(const Residence& sequence, unsigned char first) {
    std::vector<MemoryRegion> regions{memory_->slots().memory(sequence.base())};
    for (const MemoryRegion& ring : memory_->rows().row_memory(sequence.row())) {
      regions.push_back(ring);
    }
    for (const PageId page : sequence.pages()) {
      regions.push_back(memory_->pages().page_memory(page, memory_->layout().page_tokens)[0]);
    }
    for (const MemoryRegion& region : regions) {
      ASSERT_TRUE(space_.fill({&region, 1}, first++).ok());
    }
  }
  std::vector<std::byte> image_of(const Residence& sequence) {
    ByteWriter out;
    EXPECT_TRUE(write_image(*memory_, sequence, *cpu_, out).ok());
    return std::move(out).take();
  }

  static constexpr Cursor kStands{Depth{13}, Depth{8}};
  static constexpr Cursor kFoldsNext{Depth{16}, Depth{8}};

  SlowTransfers space_;
  ThreadPool threads_{1};
  std::unique_ptr<LinearOps> cpu_ = make_cpu_ops(threads_);
  HostArena arena_{space_, std::int64_t{1} << 22};
  std::optional<SequenceMemory> memory_;
};

TEST_F(CacheTransfers, WhoGetsTheMemoryOfOneThatLeavesWaits) {
  make({1, 1, 4});
  const ParkedSequence parked = park(memory_->admit(kStands).value());
  Residence next = memory_->admit().value();
  ASSERT_TRUE(memory_->prepare(next, 3, Phase::prefill).ok());
  EXPECT_FALSE(memory_->ready(next));
  EXPECT_EQ(space_.followed(), 0);
  space_.progress();
  EXPECT_TRUE(memory_->ready(next));
}

TEST_F(CacheTransfers, OtherMemoryIsHandedOutFirst) {
  make({2, 2, 8});
  const ParkedSequence parked = park(memory_->admit(kStands).value());
  Residence next = memory_->admit(kStands).value();
  ASSERT_TRUE(memory_->prepare(next, 1, Phase::decode).ok());
  EXPECT_TRUE(memory_->ready(next));
  Residence last = memory_->admit(kStands).value();
  EXPECT_FALSE(memory_->ready(last));
}

// Asking a device costs about as much as a launch, and there are thousands of pages.
TEST_F(CacheTransfers, TheDeviceIsAskedOnceForEachIdThatIsHandedOut) {
  make({2, 2, 2000});
  const ParkedSequence parked = park(memory_->admit(kStands).value());
  const int before = space_.asked();
  const Residence next = memory_->admit(kStands).value();
  EXPECT_LE(space_.asked() - before, 2 + static_cast<int>(next.pages().size()));
}

// One that arrives from elsewhere: its own memory waits, and so does who gets that memory next.
TEST_F(CacheTransfers, WhatArrivesIsWaitedForByItselfAndByWhoComesNext) {
  make({1, 1, 4});
  std::optional<Residence> sequence = memory_->admit(kStands).value();
  std::vector<std::byte> bytes(64);
  const MemoryRegion state = memory_->slots().memory(sequence->base());
  const MemoryCopy in{bytes.data(), 0, state.data, 0, std::min<std::size_t>(64, state.bytes)};
  const Transfer transfer = space_.send({&in, 1}).value();
  ASSERT_TRUE(memory_->arrives(*sequence, transfer).ok());
  EXPECT_FALSE(memory_->ready(*sequence));
  sequence.reset();
  Residence next = memory_->admit().value();
  EXPECT_FALSE(memory_->ready(next));
  EXPECT_EQ(space_.followed(), 0);
  space_.progress();
  EXPECT_TRUE(memory_->ready(next));
}

// With poison a pool fills what it takes back at once: not before the copy out of it is over.
TEST_F(CacheTransfers, PoisonFollowsACopyThatIsUnderWay) {
  memory_.emplace(small_layout(), PoolSizes{2, 2, 8}, space_, Poison::on);
  std::vector<std::byte> expected;
  const ParkedSequence parked = [&] {
    Residence sequence = memory_->admit(kStands).value();
    write(sequence, 1);
    expected = image_of(sequence);
    return park(std::move(sequence));
  }();
  EXPECT_GT(space_.followed(), 0);
  Residence back = parked.resume(*memory_).value();
  let_all_take_place();
  EXPECT_EQ(image_of(back), expected);
}

// The base of a fork that leaves is its parent's alone again: the parent's fold waits, and no step
// before.
TEST_F(CacheTransfers, AStateThatLeavesIsNotFoldedIntoMeanwhile) {
  for (const bool folds : {false, true}) {
    make({2, 2, 12});
    {
      Residence parent = memory_->admit(folds ? kFoldsNext : kStands).value();
      const ParkedSequence parked = park(memory_->fork(parent).value());
      EXPECT_FALSE(memory_->slots().shared(parent.base()));
      ASSERT_TRUE(memory_->prepare(parent, 1, Phase::decode).ok());
      EXPECT_EQ(memory_->ready(parent), !folds);
      let_all_take_place();
      EXPECT_TRUE(memory_->ready(parent));
    }
    memory_.reset();
  }
}

// What is forked from one on its way back, or takes its checkpoint, waits for it and has its bytes.
TEST_F(CacheTransfers, WhatIsForkedFromOneThatArrivesWaitsToo) {
  make({4, 4, 24});
  std::vector<std::byte> expected;
  const ParkedSequence parked = [&] {
    Residence sequence = memory_->admit(kStands).value();
    write(sequence, 1);
    expected = image_of(sequence);
    return park(std::move(sequence));
  }();
  for (const bool drops : {false, true}) {
    std::optional<Residence> arriving = parked.resume(*memory_).value();
    Residence fork = memory_->fork(*arriving).value();
    Residence checkpoint = memory_->checkpoint_of(*arriving).value();
    if (drops) arriving.reset();
    EXPECT_FALSE(memory_->ready(fork));
    EXPECT_FALSE(memory_->ready(checkpoint));
    // Whatever is put where it was meanwhile comes later.
    Residence other = memory_->admit(kStands).value();
    if (memory_->ready(other)) write(other, 100);
    let_all_take_place();
    EXPECT_TRUE(memory_->ready(fork));
    EXPECT_TRUE(memory_->ready(checkpoint));
    EXPECT_EQ(space_.followed(), 0);
    EXPECT_EQ(image_of(fork), expected);
    const Residence resumed = memory_->fork(checkpoint).value();
    EXPECT_TRUE(memory_->ready(resumed));
  }
}

// Pages have a part of the model's and one of a drafter's, and a fork copies rows and a tail
// besides: wherever that fails, what is given back is nobody's, and whoever gets it next has it
// alone.
TEST_F(CacheTransfers, NothingIsUnderWayToMemoryThatIsGivenBackAfterAnError) {
  SequenceLayout layout = small_layout();
  layout.draft.count = layout.draft.kv_heads = 1;
  layout.draft.head_dim = 64;
  for (int begin = 0; begin < 3; ++begin) {
    memory_.emplace(layout, PoolSizes{3, 3, 12}, space_);
    {
      const Residence parent = memory_->admit(kStands).value();
      const ParkedSequence parked = park(memory_->admit(kStands).value());
      Residence arriving = parked.resume(*memory_).value();
      space_.fail_after(begin);
      const int before = space_.under_way();
      const auto child = memory_->fork(arriving);
      space_.fail_after(-1);
      const bool failed = begin < 2;  // of the page, then of the row
      ASSERT_EQ(child.ok(), !failed);
      EXPECT_EQ(space_.under_way(), before + begin);
      if (!failed) continue;
      // What is under way to a page that is free again is known to whoever gets it.
      Residence next = memory_->admit(kStands).value();
      while (space_.under_way() > begin) space_.progress();
      EXPECT_EQ(memory_->ready(next), begin == 0) << begin;
      let_all_take_place();
      EXPECT_TRUE(memory_->ready(next));
    }
    memory_.reset();
  }
}

// A fork whose row is still on its way elsewhere is copied when that is over; the parent's records
// stay until then.
TEST_F(CacheTransfers, AParentWaitsForTheCopyOfItsRecords) {
  make({2, 3, 16});
  Residence parent = memory_->admit(kStands).value();
  write(parent, 1);
  const std::vector<std::byte> expected = image_of(parent);
  const ParkedSequence parked = park(memory_->admit(kStands).value());
  Residence child = memory_->fork(parent).value();
  EXPECT_FALSE(memory_->ready(child));
  ASSERT_TRUE(memory_->prepare(parent, 1, Phase::decode).ok());
  EXPECT_FALSE(memory_->ready(parent));
  let_all_take_place();
  EXPECT_TRUE(memory_->ready(parent));
  EXPECT_TRUE(memory_->ready(child));
  EXPECT_EQ(image_of(child), expected);
}

}  // namespace
}  // namespace replayssm
