#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cache/id_pool.h"
#include "cache/page_pool.h"
#include "cache/row_pool.h"
#include "cache/slot_pool.h"
#include "core/bfloat16.h"
#include "memory_spaces.h"

namespace replayssm {
namespace {

SequenceLayout small_layout() {
  SequenceLayout layout;
  layout.linear_layers = 3;
  layout.attention_layers = 1;
  layout.heads = {GateKind::gdn, 1, 2};
  layout.kv_heads = 1;
  layout.head_dim = 256;
  layout.geometry = FoldGeometry::make(8, 4).value();
  layout.activation_type = DType::bf16;
  layout.page_tokens = 4;
  return layout;
}

TEST(IdPool, HandsOutEveryIdOnceAndThenNone) {
  IdPool<SlotId> pool("slot", 5);
  std::set<int> seen;
  for (int i = 0; i < 5; ++i) seen.insert(pool.allocate().value().value);
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(pool.allocate().has_value());
  EXPECT_EQ(pool.free(), 0);
}

TEST(IdPool, AnIdIsFreeOnlyAfterItsLastHolder) {
  IdPool<PageId> pool("page", 1);
  const PageId id = pool.allocate().value();
  ASSERT_TRUE(pool.retain(id).ok());
  EXPECT_EQ(pool.references(id), 2);
  EXPECT_FALSE(pool.release(id).value());
  EXPECT_FALSE(pool.allocate().has_value());
  EXPECT_TRUE(pool.release(id).value());
  EXPECT_TRUE(pool.allocate().has_value());
}

TEST(IdPool, RefusesToReleaseOrShareWhatNobodyHolds) {
  IdPool<SlotId> pool("state slot", 2);
  const SlotId id = pool.allocate().value();
  ASSERT_TRUE(pool.release(id).ok());
  const auto twice = pool.release(id);
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("state slot: 0"), std::string::npos);
  EXPECT_FALSE(pool.retain(id).ok());
  EXPECT_FALSE(pool.release(SlotId{-1}).ok());
  EXPECT_FALSE(pool.release(SlotId{2}).ok());
  EXPECT_EQ(pool.free(), 2) << "a refused release must not grow the free list";
}

class SlotPoolTest : public InEitherSpace {};
class RowPoolTest : public InEitherSpace {};
class PagePoolTest : public InEitherSpace {};
INSTANTIATE_TEST_SUITE_P(Spaces, SlotPoolTest, testing::Bool(), space_name);
INSTANTIATE_TEST_SUITE_P(Spaces, RowPoolTest, testing::Bool(), space_name);
INSTANTIATE_TEST_SUITE_P(Spaces, PagePoolTest, testing::Bool(), space_name);

// One slot's part of a layer's states or conv tails.
MemoryRegion state_of(const SequenceLayout& layout, const StateView& view, int slot) {
  return {static_cast<std::byte*>(view.data) +
              static_cast<std::size_t>(slot) * view.slot_stride * size_of(view.type),
          static_cast<std::size_t>(layout.state_bytes())};
}
MemoryRegion tail_of(const SequenceLayout& layout, const ConvTailView& view, int slot) {
  return {static_cast<std::byte*>(view.inputs) +
              static_cast<std::size_t>(slot) * view.slot_stride * size_of(view.type),
          static_cast<std::size_t>(layout.tail_bytes())};
}

void fill(MemorySpace& space, const MemoryRegion& region, int byte) {
  EXPECT_TRUE(space.fill({&region, 1}, static_cast<unsigned char>(byte)).ok());
}

bool all_are(MemorySpace& space, const MemoryRegion& region, int byte) {
  const std::vector<std::byte> bytes = bytes_of(space, region);
  return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == std::byte(byte); });
}

TEST_P(SlotPoolTest, SlotsAreDisjointOverAllLayersAndFillTheStorage) {
  const SequenceLayout layout = small_layout();
  SlotPool pool(layout, 4, space());
  EXPECT_EQ(pool.bytes(), 4 * layout.slot_bytes());
  for (int layer = 0; layer < layout.linear_layers; ++layer) {
    const StateView states = pool.states(layer);
    const ConvTailView tails = pool.conv_tails(layer);
    EXPECT_EQ(states.slots, 4);
    EXPECT_EQ(states.slot_stride * sizeof(float), static_cast<std::size_t>(layout.slot_bytes()));
    EXPECT_EQ(tails.slot_stride * sizeof(bf16), static_cast<std::size_t>(layout.slot_bytes()));
    for (int slot = 0; slot < 4; ++slot) {
      fill(space(), state_of(layout, states, slot), slot * 16 + layer);
      fill(space(), tail_of(layout, tails, slot), 128 + slot * 16 + layer);
    }
  }
  for (int layer = 0; layer < layout.linear_layers; ++layer) {
    for (int slot = 0; slot < 4; ++slot) {
      EXPECT_TRUE(all_are(space(), state_of(layout, pool.states(layer), slot), slot * 16 + layer));
      const MemoryRegion tail = tail_of(layout, pool.conv_tails(layer), slot);
      EXPECT_TRUE(all_are(space(), tail, 128 + slot * 16 + layer));
      EXPECT_EQ(pool.tail_memory(SlotId{slot}).piece(static_cast<std::size_t>(layer)), tail.data);
    }
  }
}

TEST_P(SlotPoolTest, PoisonFillsASlotWhenItIsTakenAndWhenItIsFree) {
  const SequenceLayout layout = small_layout();
  SlotPool pool(layout, 2, space(), Poison::on);
  const SlotId slot = pool.allocate().value();
  const MemoryRegion state = state_of(layout, pool.states(1), slot.value);
  EXPECT_TRUE(all_are(space(), state, kPoisonByte));
  fill(space(), state, 1);
  ASSERT_TRUE(pool.retain(slot).ok());
  ASSERT_TRUE(pool.release(slot).ok());
  EXPECT_TRUE(all_are(space(), state, 1)) << "still held by another";
  ASSERT_TRUE(pool.release(slot).ok());
  EXPECT_TRUE(all_are(space(), state, kPoisonByte));
}

TEST_P(RowPoolTest, HasExactlyTheBytesOfItsLayoutAndNoRingsWithReplayOff) {
  SequenceLayout layout = small_layout();
  RowPool pool(layout, 3, space());
  EXPECT_EQ(pool.ring_bytes(), 3 * layout.ring_bytes_per_row());
  EXPECT_EQ(pool.conv_ring_bytes(), 3 * layout.conv_ring_bytes_per_row());
  EXPECT_EQ(pool.cursor_bytes(), 4 * layout.cursor_bytes_per_row()) << "the null row has one";
  // 3 layers x 16 rows x (1 key head: 128 bf16 and a scale; 2 value heads: 128 floats and a gate)
  EXPECT_EQ(layout.ring_bytes_per_row(), 3 * 16 * (128 * 2 + 4 + 2 * (128 * 4 + 4)));
  layout.recurrence = Recurrence::packed;
  EXPECT_EQ(RowPool(layout, 3, space()).ring_bytes(), 0);
}

TEST_P(RowPoolTest, RowMemoryCoversEveryRingByteOfARowAndNoneOfAnother) {
  const SequenceLayout layout = small_layout();
  RowPool pool(layout, 3, space());
  std::size_t bytes = 0;
  for (const MemoryRegion& ring : pool.row_memory(RowIndex{1})) {
    fill(space(), ring, 1);
    bytes += ring.total();
  }
  EXPECT_EQ(static_cast<std::int64_t>(bytes),
            layout.ring_bytes_per_row() + layout.conv_ring_bytes_per_row());
  for (const int other : {0, 2}) {
    for (const MemoryRegion& ring : pool.row_memory(RowIndex{other})) {
      ASSERT_TRUE(all_are(space(), ring, 0));
    }
  }
  // The views of the operations index the same bytes.
  for (int layer = 0; layer < layout.linear_layers; ++layer) {
    const RingView view = pool.rings(layer);
    const void* arrays[] = {view.keys, view.key_scales, view.corrections, view.gates,
                            pool.conv_rings(layer).inputs};
    for (int row = 0; row < 3; ++row) {
      const auto memory = pool.row_memory(RowIndex{row});
      for (std::size_t i = 0; i < memory.size(); ++i) {
        EXPECT_EQ(memory[i].piece(static_cast<std::size_t>(layer)),
                  static_cast<const std::byte*>(arrays[i]) +
                      static_cast<std::size_t>(row) * memory[i].bytes);
      }
    }
  }
  EXPECT_EQ(pool.row_memory(RowIndex{0})[2].bytes, 2 * 16 * 128 * sizeof(float)) << "corrections";
}

TEST_P(RowPoolTest, ACursorIsWrittenWholeOrByItsHomeAloneAndAReleasedRowForgetsIt) {
  RowPool pool(small_layout(), 2, space());
  const RowIndex row = pool.allocate().value();
  const CursorView view = pool.cursors();
  const auto state = [&](RowIndex r) {
    return std::vector<int>{value_at(space(), view.committed, r.value).tokens,
                            value_at(space(), view.checkpoint, r.value).tokens,
                            value_at(space(), view.base, r.value).value,
                            value_at(space(), view.home, r.value).value};
  };
  const std::vector<int> nowhere{0, 0, -1, -1};
  EXPECT_EQ(state(row), nowhere);
  ASSERT_TRUE(pool.set_cursor(row, {Depth{13}, Depth{8}}, SlotId{1}, SlotId{2}).ok());
  EXPECT_EQ(state(row), (std::vector<int>{13, 8, 1, 2}));
  ASSERT_TRUE(pool.set_home(row, SlotId{5}).ok());
  EXPECT_EQ(state(row), (std::vector<int>{13, 8, 1, 5}));
  EXPECT_EQ(state(RowIndex{1 - row.value}), nowhere);
  EXPECT_EQ(state(pool.null_row()), nowhere);
  ASSERT_TRUE(pool.release(row).ok());
  EXPECT_EQ(state(row), nowhere);
  EXPECT_FALSE(pool.release(row).ok());
}

TEST_P(RowPoolTest, TheNullRowIsNeverHandedOut) {
  RowPool pool(small_layout(), 2, space());
  EXPECT_EQ(pool.cursors().null_row, pool.null_row());
  EXPECT_LT(pool.null_row().value, pool.cursors().rows);
  EXPECT_EQ(pool.rings(0).rows, 2) << "it has no ring";
  EXPECT_NE(pool.allocate().value(), pool.null_row());
  EXPECT_NE(pool.allocate().value(), pool.null_row());
  EXPECT_FALSE(pool.allocate().ok());
  EXPECT_FALSE(pool.release(pool.null_row()).ok());
}

TEST_P(PagePoolTest, PagesOfAllLayersAreDisjointAndCopyTakesTheFirstPositionsOnly) {
  SequenceLayout layout = small_layout();
  layout.attention_layers = 2;
  layout.draft = {2, 3, 32, 0};  // narrower than the model's
  PagePool pool(layout, 3, space());
  EXPECT_EQ(pool.bytes(), 3 * layout.page_bytes());
  const PageId from = pool.allocate().value();
  const PageId to = pool.allocate().value();
  const auto keys = [&](int layer, PageId page, int i) {
    return MemoryRegion{pool.keys_at(layer, page, i), pool.position_bytes(layer)};
  };
  const auto values = [&](int layer, PageId page, int i) {
    return MemoryRegion{pool.values_at(layer, page, i), pool.position_bytes(layer)};
  };
  int mark = 1;
  for (int layer = 0; layer < layout.kv_layers(); ++layer) {
    for (int i = 0; i < layout.page_tokens; ++i) {
      fill(space(), keys(layer, from, i), mark++);
      fill(space(), values(layer, from, i), mark++);
    }
  }
  ASSERT_TRUE(pool.copy(from, to, 3).ok());
  mark = 1;
  for (int layer = 0; layer < layout.kv_layers(); ++layer) {
    EXPECT_EQ(pool.kv(layer).keys, pool.keys_at(layer, PageId{0}, 0));
    for (int i = 0; i < layout.page_tokens; ++i) {
      EXPECT_TRUE(all_are(space(), keys(layer, from, i), mark));
      EXPECT_TRUE(all_are(space(), keys(layer, to, i), i < 3 ? mark : 0));
      ++mark;
      EXPECT_TRUE(all_are(space(), values(layer, from, i), mark));
      EXPECT_TRUE(all_are(space(), values(layer, to, i), i < 3 ? mark : 0));
      ++mark;
    }
  }
}

}  // namespace
}  // namespace replayssm
