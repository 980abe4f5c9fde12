// Holdings of sequences: who shares what, who owns what before a fold, and that everything returns.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "cache/sequence_image.h"
#include "cache/sequence_memory.h"
#include "memory_spaces.h"

namespace replayssm {
namespace {

constexpr int kBlock = 8;

SequenceLayout layout_of(Recurrence recurrence = Recurrence::replay) {
  SequenceLayout layout;
  layout.linear_layers = 2;
  layout.attention_layers = 1;
  layout.heads = {GateKind::gdn, 1, 1};
  layout.kv_heads = 1;
  layout.head_dim = 64;
  layout.geometry = FoldGeometry::make(kBlock, 1).value();
  layout.recurrence = recurrence;
  layout.page_tokens = 4;
  return layout;
}

struct RowState {
  Cursor cursor;
  SlotId base, home;
  bool operator==(const RowState&) const = default;
};

// What the operations find of a row.
RowState row_state(SequenceMemory& memory, RowIndex row) {
  const CursorView& view = memory.views().cursors;
  MemorySpace& space = memory.space();
  return {{value_at(space, view.committed, row.value), value_at(space, view.checkpoint, row.value)},
          value_at(space, view.base, row.value),
          value_at(space, view.home, row.value)};
}

// Does what a step of the engine does to memory, without computing anything.
void step(SequenceMemory& memory, Residence& sequence, int tokens, Phase phase) {
  ASSERT_TRUE(memory.prepare(sequence, tokens, phase).ok());
  const RowState before = row_state(memory, sequence.row());
  EXPECT_EQ(before, (RowState{sequence.cursor(), sequence.base(), sequence.home()}));
  const bool packed = memory.layout().recurrence == Recurrence::packed;
  const int blocks = memory.blocks_folded(sequence, tokens, phase);
  const bool writes = packed || blocks > 0;
  if (writes) {
    EXPECT_EQ(memory.slots().references(before.home), 1) << "a slot has one writer";
  }
  memory.settle(sequence, tokens, tokens, phase);
  // As advance would.
  RowState after = before;
  after.cursor.committed += tokens;
  after.cursor.checkpoint =
      packed ? after.cursor.committed : before.cursor.checkpoint + blocks * kBlock;
  if (writes) after.base = before.home;
  EXPECT_EQ(after, (RowState{sequence.cursor(), sequence.base(), sequence.home()}));
  ASSERT_TRUE(memory.rows().set_cursor(sequence.row(), after.cursor, after.base, after.home).ok());
}

// All bytes of the row's rings.
std::vector<std::byte> rings_of(SequenceMemory& memory, const Residence& sequence) {
  std::vector<std::byte> all;
  for (const MemoryRegion& ring : memory.rows().row_memory(sequence.row())) {
    const auto bytes = bytes_of(memory.space(), ring);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

class SequenceMemoryTest : public InEitherSpace {};
class SequenceImageTest : public InEitherSpace {};
INSTANTIATE_TEST_SUITE_P(Spaces, SequenceMemoryTest, testing::Bool(), space_name);
INSTANTIATE_TEST_SUITE_P(Spaces, SequenceImageTest, testing::Bool(), space_name);

TEST_P(SequenceMemoryTest, BytesAreExactlyThoseOfTheLayout) {
  const SequenceLayout layout = layout_of();
  const SequenceMemory memory(layout, {3, 5, 7}, space());
  EXPECT_EQ(memory.bytes(),
            5 * layout.slot_bytes() +
                3 * (layout.ring_bytes_per_row() + layout.conv_ring_bytes_per_row()) +
                (3 + 1) * layout.cursor_bytes_per_row() + 7 * layout.page_bytes());
}

TEST(SequenceMemory, WhatASpaceCannotGiveIsRefusedInItsWordsAndNothingIsHeld) {
  const SequenceLayout layout = layout_of();
  GuardedSpace space;
  const auto bytes = static_cast<std::size_t>(SequenceMemory(layout, {3, 5, 7}).bytes());
  space.limit(bytes - 1);
  const auto refused = SequenceMemory::make(layout, {3, 5, 7}, space);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            fmt::format("device memory: {} bytes are needed, {} are free", 7 * layout.page_bytes(),
                        7 * layout.page_bytes() - 1));
  space.limit(bytes);
  EXPECT_TRUE(SequenceMemory::make(layout, {3, 5, 7}, space).ok());
}

// A device takes microseconds for every part of an operation, whatever its size.
TEST(SequenceMemory, TransfersTakeAsManyPartsForManyLayersAsForOne) {
  for (const int layers : {1, 12}) {
    SequenceLayout layout = layout_of();
    layout.linear_layers = layout.attention_layers = layers;
    GuardedSpace space;
    SequenceMemory memory(layout, {4, 4, 40}, space);
    const auto parts_of = [&](auto&& operation) {
      const int before = space.parts();
      operation();
      return space.parts() - before;
    };
    Residence parent, child, checkpoint;
    EXPECT_EQ(parts_of([&] { parent = memory.admit().value(); }), 1) << "the cursor";
    EXPECT_EQ(parts_of([&] { ASSERT_TRUE(memory.prepare(parent, 14, Phase::prefill).ok()); }), 0);
    memory.settle(parent, 14, 14, Phase::prefill);
    EXPECT_EQ(parts_of([&] { child = memory.fork(parent).value(); }), 5 + 2 + 1)
        << "rings, a page with no drafter's part in it, the cursor";
    EXPECT_EQ(parts_of([&] { child = memory.fork_at(parent, Depth{8}).value(); }), 5 + 3 + 1 + 1)
        << "rings, conv tail, the cursor; and the cursor of the row that the first child gave back";
    EXPECT_EQ(parts_of([&] { checkpoint = memory.checkpoint_of(parent).value(); }), 0);
    // The block is complete with two more; then the step needs a home.
    ASSERT_TRUE(memory.prepare(parent, 2, Phase::prefill).ok());
    memory.settle(parent, 2, 2, Phase::prefill);
    EXPECT_EQ(parts_of([&] { ASSERT_TRUE(memory.prepare(parent, 1, Phase::decode).ok()); }), 1);
    EXPECT_NE(parent.home(), parent.base());
  }
}

TEST(GuardedSpaceDeathTest, TheHostMayNotTouchItsAddresses) {
  GuardedSpace space;
  const SpaceBuffer buffer(space, 100);
  EXPECT_DEATH(*buffer.data() = std::byte{1}, "");
  EXPECT_EQ(bytes_of(space, buffer.whole()), std::vector<std::byte>(100));
}

TEST_P(SequenceMemoryTest, AloneASequenceFoldsInPlaceAndUsesOneSlot) {
  SequenceMemory memory(layout_of(), {1, 1, 20}, space());
  Residence sequence = memory.admit().value();
  const SlotId slot = sequence.base();
  step(memory, sequence, 13, Phase::prefill);
  for (int i = 0; i < 30; ++i) step(memory, sequence, 1, Phase::decode);
  EXPECT_EQ(sequence.cursor().committed, Depth{43});
  EXPECT_EQ(sequence.cursor().checkpoint, Depth{40});
  EXPECT_EQ(sequence.base(), slot);
  EXPECT_EQ(memory.slots().used(), 1);
  EXPECT_EQ(memory.pages().used(), 11);
}

TEST_P(SequenceMemoryTest, ForksShareOneBaseUntilEachFoldsIntoItsOwnHome) {
  SequenceMemory memory(layout_of(), {4, 4, 40}, space());
  std::vector<Residence> all;
  all.push_back(memory.admit().value());
  step(memory, all[0], 12, Phase::prefill);  // checkpoint 8, pending 4
  for (int i = 0; i < 3; ++i) all.push_back(memory.fork(all[0]).value());
  EXPECT_EQ(memory.slots().used(), 1);
  EXPECT_EQ(memory.slots().references(all[0].base()), 4);
  EXPECT_EQ(memory.pages().used(), 3) << "three full pages, shared";
  for (int token = 12; token <= 16; ++token) {
    for (Residence& sequence : all) step(memory, sequence, 1, Phase::decode);
    // Tokens 13 .. 16 make the block complete; the step for the 17th begins by folding it. The last
    // of the four is the only holder by then and folds in place.
    EXPECT_EQ(memory.slots().used(), token < 16 ? 1 : 4) << token;
  }
  for (const Residence& sequence : all) {
    EXPECT_EQ(memory.slots().references(sequence.base()), 1);
    EXPECT_EQ(sequence.base(), sequence.home());
  }
}

TEST_P(SequenceMemoryTest, ForkCopiesTheLastPartialPageAndSharesTheFullOnes) {
  SequenceMemory memory(layout_of(), {2, 2, 8}, space());
  Residence parent = memory.admit().value();
  step(memory, parent, 6, Phase::prefill);
  const auto key_of = [&](const Residence& sequence) {
    return MemoryRegion{memory.pages().keys_at(0, sequence.pages()[1], 1),
                        memory.pages().position_bytes(0)};
  };
  const MemoryRegion key = key_of(parent);
  ASSERT_TRUE(space().fill({&key, 1}, 9).ok());
  const Residence child = memory.fork(parent).value();
  ASSERT_EQ(child.pages().size(), 2u);
  EXPECT_EQ(child.pages()[0], parent.pages()[0]);
  EXPECT_NE(child.pages()[1], parent.pages()[1]);
  EXPECT_EQ(bytes_of(space(), key_of(child))[5], std::byte{9});
  EXPECT_EQ(memory.pages().references(child.pages()[0]), 2);
}

// One token in, the position before is the beginning: nothing is read or copied for it.
TEST_P(SequenceMemoryTest, WithoutAttentionLayersNoPagesAreNeeded) {
  SequenceLayout layout = layout_of();
  layout.attention_layers = 0;
  layout.kv_heads = 0;
  SequenceMemory memory(layout, {3, 4, 0}, space());
  auto sequence = memory.admit();
  ASSERT_TRUE(sequence.ok());
  step(memory, *sequence, 11, Phase::prefill);
  const auto fork = memory.fork(*sequence);
  ASSERT_TRUE(fork.ok());
  EXPECT_TRUE(fork->pages().empty());
  EXPECT_TRUE(memory.checkpoint_of(*sequence).ok());
}

TEST_P(SequenceMemoryTest, AForkBeforeTheFirstTokenIsAnEmptySequence) {
  SequenceMemory memory(layout_of(), {3, 3, 8}, space(), Poison::on);
  Residence parent = memory.admit().value();
  step(memory, parent, 1, Phase::prefill);
  const Residence neighbour = memory.admit().value();
  const auto parent_before = rings_of(memory, parent);
  const auto neighbour_before = rings_of(memory, neighbour);
  auto fork = memory.fork_at(parent, Depth{0});
  ASSERT_TRUE(fork.ok());
  EXPECT_EQ(fork->cursor(), Cursor{});
  EXPECT_TRUE(fork->pages().empty());
  EXPECT_EQ(rings_of(memory, parent), parent_before);
  EXPECT_EQ(rings_of(memory, neighbour), neighbour_before);
}

TEST_P(SequenceMemoryTest, ASharedCheckpointWithNoFreeSlotWaitsAndChangesNothing) {
  SequenceMemory memory(layout_of(), {3, 1, 40}, space());
  Residence parent = memory.admit().value();
  step(memory, parent, 16, Phase::prefill);  // pending 8: the next step folds
  Residence child = memory.fork(parent).value();
  const int pages = memory.pages().used();
  const Status refused = memory.prepare(child, 1, Phase::decode);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("state slots: all 1 are in use"), std::string::npos);
  EXPECT_EQ(memory.pages().used(), pages);
  EXPECT_EQ(child.home(), child.base());
  parent = Residence();  // the other holder ends
  EXPECT_TRUE(memory.prepare(child, 1, Phase::decode).ok());
}

TEST_P(SequenceMemoryTest, RefusalsNameWhatIsMissingAndHoldNothing) {
  SequenceMemory memory(layout_of(), {1, 2, 3}, space());
  EXPECT_FALSE(memory.admit(Cursor{Depth{13}, Depth{8}}).ok()) << "four pages are needed";
  EXPECT_FALSE(memory.admit(Cursor{Depth{8}, Depth{4}}).ok()) << "not a multiple of the block";
  EXPECT_FALSE(memory.admit(Cursor{Depth{20}, Depth{8}}).ok()) << "too many pending";
  EXPECT_FALSE(memory.admit(Cursor{Depth{4}, Depth{8}}).ok());
  EXPECT_EQ(memory.rows().used() + memory.slots().used() + memory.pages().used(), 0);
  Residence sequence = memory.admit().value();
  const auto second = memory.admit();
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("all 1 rows are in use"), std::string::npos);
  const Status pages = memory.prepare(sequence, 13, Phase::prefill);
  ASSERT_FALSE(pages.ok());
  EXPECT_NE(pages.error().message.find("4 more are needed, 3 of 3 are free"), std::string::npos);
  EXPECT_EQ(memory.pages().used(), 0);
}

TEST_P(SequenceMemoryTest, WithReplayOffEveryStepNeedsAHomeOfItsOwn) {
  SequenceMemory memory(layout_of(Recurrence::packed), {2, 2, 8}, space());
  Residence parent = memory.admit().value();
  step(memory, parent, 5, Phase::prefill);
  EXPECT_EQ(parent.cursor().checkpoint, Depth{5});
  Residence child = memory.fork(parent).value();
  EXPECT_EQ(memory.slots().used(), 1);
  step(memory, child, 1, Phase::decode);
  EXPECT_EQ(memory.slots().used(), 2);
  EXPECT_TRUE(memory.views().rings.empty());
}

// A storm of admissions, forks, steps and ends: nothing leaks, no slot has two writers.
TEST_P(SequenceMemoryTest, CountersReturnToTheirStartValuesAfterAStorm) {
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    SequenceMemory memory(layout_of(recurrence), {6, 6, 60}, space(), Poison::on);
    std::mt19937 random(7);
    std::vector<Residence> live;
    for (int i = 0; i < 3000; ++i) {
      const auto what = random() % 10;
      const std::size_t pick = live.empty() ? 0 : random() % live.size();
      if (what == 0) {
        if (auto admitted = memory.admit()) live.push_back(std::move(*admitted));
      } else if (live.empty()) {
        continue;
      } else if (what == 1) {
        if (auto child = memory.fork(live[pick])) live.push_back(std::move(*child));
      } else if (what == 2) {
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      } else {
        const bool chunk = what == 3;
        const int tokens = chunk ? static_cast<int>(random() % 20) + 1 : 1;
        const Phase phase = chunk ? Phase::prefill : Phase::decode;
        if (memory.prepare(live[pick], tokens, phase).ok()) step(memory, live[pick], tokens, phase);
      }
      if (HasFatalFailure()) return;
    }
    live.clear();
    EXPECT_EQ(memory.rows().free(), 6);
    EXPECT_EQ(memory.slots().free(), 6);
    EXPECT_EQ(memory.pages().free(), 60);
  }
}

// With as many slots as rows somebody can always fold, whatever is shared: the engine never stalls.
TEST_P(SequenceMemoryTest, SomeForkCanAlwaysFoldWithOneSlotARow) {
  SequenceMemory memory(layout_of(), {4, 4, 60}, space());
  std::vector<Residence> all;
  all.push_back(memory.admit().value());
  step(memory, all[0], 16, Phase::prefill);
  for (int i = 0; i < 3; ++i) all.push_back(memory.fork(all[0]).value());
  // All four prepare for the same step: three get homes, the fourth must wait, since nobody may
  // write what others still read.
  int ready = 0;
  for (Residence& sequence : all) ready += memory.prepare(sequence, 1, Phase::decode).ok() ? 1 : 0;
  EXPECT_EQ(ready, 3);
  for (int i = 0; i < 3; ++i) memory.settle(all[static_cast<std::size_t>(i)], 1, 1, Phase::decode);
  EXPECT_TRUE(memory.prepare(all[3], 1, Phase::decode).ok());
  EXPECT_EQ(all[3].home(), all[3].base()) << "in place, as the last holder";
}

// Fills everything that belongs to a sequence with bytes that depend on the place.
void scribble(SequenceMemory& memory, const Residence& sequence) {
  std::mt19937 random(11);
  const auto fill = [&](const MemoryRegion& region) {
    std::vector<std::byte> bytes(region.total());
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
      const float value = static_cast<float>(random() % 1000) / 7.0f;
      std::memcpy(bytes.data() + i, &value, sizeof(float));
    }
    put_bytes(memory.space(), region, std::move(bytes));
  };
  for (const MemoryRegion& ring : memory.rows().row_memory(sequence.row())) fill(ring);
  for (const StateView& view : memory.views().states) {
    float* state = static_cast<float*>(view.data) + sequence.base().value * view.slot_stride;
    fill({reinterpret_cast<std::byte*>(state),
          memory.layout().heads.state_elements() * sizeof(float)});
  }
  fill(memory.slots().tail_memory(sequence.base()));
  for (int i = 0; i < sequence.cursor().committed.tokens; ++i) {
    const PageId page = sequence.pages()[static_cast<std::size_t>(i / 4)];
    fill({memory.pages().keys_at(0, page, i % 4), memory.pages().position_bytes(0)});
    fill({memory.pages().values_at(0, page, i % 4), memory.pages().position_bytes(0)});
  }
}

std::vector<std::byte> image_of(SequenceMemory& memory, const Residence& sequence,
                                const LinearOps& ops) {
  ByteWriter out;
  EXPECT_TRUE(write_image(memory, sequence, ops, out).ok());
  std::vector<std::byte> bytes = std::move(out).take();
  EXPECT_EQ(image_bytes(memory, sequence), static_cast<std::int64_t>(bytes.size()));
  return bytes;
}

TEST_P(SequenceImageTest, RoundTripsThroughPoolsOfOtherSizes) {
  for (const auto& [t, c] : {std::pair{0, 0}, {1, 0}, {5, 0}, {8, 0}, {13, 8}, {16, 8}, {40, 32}}) {
    SequenceMemory source(layout_of(), {2, 2, 20}, space(), Poison::on);
    const Residence other = source.admit().value();
    const Residence sequence = source.admit(Cursor{Depth{t}, Depth{c}}).value();
    scribble(source, sequence);
    const auto image = image_of(source, sequence, ops());

    SequenceLayout roomy = layout_of();
    roomy.geometry = FoldGeometry::make(kBlock, 8).value();
    roomy.page_tokens = 16;
    SequenceMemory target(roomy, {5, 5, 20}, space(), Poison::on);
    const Residence elsewhere = target.admit().value();
    ByteReader in(image);
    const auto restored = read_image(target, ops(), in);
    ASSERT_TRUE(restored.ok()) << restored.error().message;
    EXPECT_EQ(in.left(), 0u);
    EXPECT_EQ(restored->cursor(), sequence.cursor());
    EXPECT_EQ(image_of(target, *restored, ops()), image) << "t " << t << " c " << c;
  }
}

TEST_P(SequenceImageTest, RefusesOtherFormatsByNameAndTruncationAndHoldsNothing) {
  SequenceMemory source(layout_of(), {1, 1, 20}, space());
  const Residence sequence = source.admit(Cursor{Depth{13}, Depth{8}}).value();
  scribble(source, sequence);
  const auto image = image_of(source, sequence, ops());

  SequenceLayout other = layout_of();
  other.geometry = FoldGeometry::make(16, 1).value();
  SequenceMemory sixteen(other, {1, 1, 20}, space());
  ByteReader in(image);
  const auto refused = read_image(sixteen, ops(), in);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "serialised sequence: fold block: 8 is not accepted; expected 16");

  SequenceMemory same(layout_of(), {1, 1, 20}, space());
  for (const std::size_t kept :
       {std::size_t{0}, std::size_t{3}, std::size_t{50}, std::size_t{5000}, image.size() - 1}) {
    ByteReader cut(std::span<const std::byte>(image).first(kept));
    EXPECT_FALSE(read_image(same, ops(), cut).ok()) << kept;
    EXPECT_EQ(same.rows().used() + same.slots().used() + same.pages().used(), 0) << kept;
  }
}

}  // namespace
}  // namespace replayssm
