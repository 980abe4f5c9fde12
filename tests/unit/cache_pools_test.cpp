#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "cache/id_pool.h"
#include "cache/page_pool.h"
#include "cache/row_pool.h"
#include "cache/slot_pool.h"
#include "core/bfloat16.h"

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

TEST(SlotPool, SlotsAreDisjointOverAllLayersAndFillTheStorage) {
  const SequenceLayout layout = small_layout();
  SlotPool pool(layout, 4);
  EXPECT_EQ(pool.bytes(), 4 * layout.slot_bytes());
  std::set<const char*> starts;
  const auto state_elements = layout.heads.state_elements();
  for (int layer = 0; layer < layout.linear_layers; ++layer) {
    const StateView states = pool.states(layer);
    const ConvTailView tails = pool.conv_tails(layer);
    EXPECT_EQ(states.slots, 4);
    EXPECT_EQ(states.slot_stride * sizeof(float), static_cast<std::size_t>(layout.slot_bytes()));
    EXPECT_EQ(tails.slot_stride * sizeof(bf16), static_cast<std::size_t>(layout.slot_bytes()));
    for (int slot = 0; slot < 4; ++slot) {
      auto* state = static_cast<float*>(states.data) + slot * states.slot_stride;
      std::memset(state, slot * 16 + layer, state_elements * sizeof(float));
      auto* tail = static_cast<char*>(tails.inputs) + slot * tails.slot_stride * 2;
      std::memset(tail, 128 + slot * 16 + layer, static_cast<std::size_t>(layout.tail_bytes()));
    }
  }
  for (int layer = 0; layer < layout.linear_layers; ++layer) {
    const StateView states = pool.states(layer);
    const ConvTailView tails = pool.conv_tails(layer);
    for (int slot = 0; slot < 4; ++slot) {
      const auto* state = reinterpret_cast<const unsigned char*>(static_cast<float*>(states.data) +
                                                                 slot * states.slot_stride);
      for (std::size_t i = 0; i < state_elements * sizeof(float); ++i) {
        ASSERT_EQ(state[i], slot * 16 + layer);
      }
      const auto* tail =
          static_cast<const unsigned char*>(tails.inputs) + slot * tails.slot_stride * 2;
      for (std::int64_t i = 0; i < layout.tail_bytes(); ++i) {
        ASSERT_EQ(tail[i], 128 + slot * 16 + layer);
      }
    }
  }
}

bool all_nan(const StateView& view, SlotId slot, std::size_t elements) {
  const float* state = static_cast<const float*>(view.data) + slot.value * view.slot_stride;
  for (std::size_t i = 0; i < elements; ++i) {
    if (!std::isnan(state[i])) return false;
  }
  return true;
}

TEST(SlotPool, PoisonFillsASlotWhenItIsTakenAndWhenItIsFree) {
  const SequenceLayout layout = small_layout();
  SlotPool pool(layout, 2, Poison::on);
  const StateView view = pool.states(1);
  const SlotId slot = pool.allocate().value();
  EXPECT_TRUE(all_nan(view, slot, layout.heads.state_elements()));
  auto* state = static_cast<float*>(view.data) + slot.value * view.slot_stride;
  std::fill_n(state, layout.heads.state_elements(), 1.0f);
  ASSERT_TRUE(pool.retain(slot).ok());
  ASSERT_TRUE(pool.release(slot).ok());
  EXPECT_EQ(state[0], 1.0f) << "still held by another";
  ASSERT_TRUE(pool.release(slot).ok());
  EXPECT_TRUE(all_nan(view, slot, layout.heads.state_elements()));
}

TEST(RowPool, HasExactlyTheBytesOfItsLayoutAndNoRingsWithReplayOff) {
  SequenceLayout layout = small_layout();
  RowPool pool(layout, 3);
  EXPECT_EQ(pool.ring_bytes(), 3 * layout.ring_bytes_per_row());
  EXPECT_EQ(pool.conv_ring_bytes(), 3 * layout.conv_ring_bytes_per_row());
  EXPECT_EQ(pool.cursor_bytes(), 3 * layout.cursor_bytes_per_row());
  // 3 layers x 16 rows x (1 key head: 128 bf16 and a scale; 2 value heads: 128 floats and a gate)
  EXPECT_EQ(layout.ring_bytes_per_row(), 3 * 16 * (128 * 2 + 4 + 2 * (128 * 4 + 4)));
  layout.recurrence = Recurrence::packed;
  EXPECT_EQ(RowPool(layout, 3).ring_bytes(), 0);
}

TEST(RowPool, RowMemoryCoversEveryRingByteOfARowAndNoneOfAnother) {
  const SequenceLayout layout = small_layout();
  RowPool pool(layout, 3);
  std::int64_t bytes = 0;
  for (const auto part : pool.row_memory(RowIndex{1})) {
    std::memset(part.data(), 1, part.size());
    bytes += static_cast<std::int64_t>(part.size());
  }
  EXPECT_EQ(bytes, layout.ring_bytes_per_row() + layout.conv_ring_bytes_per_row());
  for (const int other : {0, 2}) {
    for (const auto part : pool.row_memory(RowIndex{other})) {
      for (const std::byte b : part) ASSERT_EQ(b, std::byte{0});
    }
  }
  // The views of the operations index the same bytes.
  const RingView ring = pool.rings(2);
  const auto* corrections = static_cast<const unsigned char*>(ring.corrections);
  const std::size_t row_bytes = 2 * 16 * 128 * sizeof(float);
  EXPECT_EQ(corrections[row_bytes - 1], 0);
  EXPECT_EQ(corrections[row_bytes], 1);
  EXPECT_EQ(corrections[2 * row_bytes - 1], 1);
  EXPECT_EQ(corrections[2 * row_bytes], 0);
}

TEST(RowPool, AReleasedRowForgetsWhereItStood) {
  RowPool pool(small_layout(), 2);
  const RowIndex row = pool.allocate().value();
  const CursorView cursors = pool.cursors();
  cursors.committed[row.value] = Depth{7};
  cursors.base[row.value] = SlotId{1};
  ASSERT_TRUE(pool.release(row).ok());
  EXPECT_EQ(cursors.committed[row.value], Depth{0});
  EXPECT_EQ(cursors.base[row.value], kNullSlot);
  EXPECT_FALSE(pool.release(row).ok());
}

TEST(PagePool, PagesOfAllLayersAreDisjointAndCopyTakesTheFirstPositionsOnly) {
  SequenceLayout layout = small_layout();
  layout.attention_layers = 2;
  layout.draft = {2, 3, 32, 0};  // narrower than the model's
  PagePool pool(layout, 3);
  EXPECT_EQ(pool.bytes(), 3 * layout.page_bytes());
  const PageId from = pool.allocate().value();
  const PageId to = pool.allocate().value();
  unsigned char mark = 1;
  for (int layer = 0; layer < layout.kv_layers(); ++layer) {
    for (int i = 0; i < layout.page_tokens; ++i) {
      std::memset(pool.keys_at(layer, from, i), mark++, pool.position_bytes(layer));
      std::memset(pool.values_at(layer, from, i), mark++, pool.position_bytes(layer));
    }
  }
  pool.copy(from, to, 3);
  mark = 1;
  for (int layer = 0; layer < layout.kv_layers(); ++layer) {
    const KvView kv = pool.kv(layer);
    EXPECT_EQ(kv.keys, pool.keys_at(layer, PageId{0}, 0));
    for (int i = 0; i < layout.page_tokens; ++i) {
      EXPECT_EQ(pool.keys_at(layer, from, i)[0], std::byte{mark});
      EXPECT_EQ(pool.keys_at(layer, from, i)[pool.position_bytes(layer) - 1], std::byte{mark});
      EXPECT_EQ(pool.keys_at(layer, to, i)[pool.position_bytes(layer) - 1],
                std::byte{static_cast<unsigned char>(i < 3 ? mark : 0)});
      ++mark;
      EXPECT_EQ(pool.values_at(layer, to, i)[0],
                std::byte{static_cast<unsigned char>(i < 3 ? mark : 0)});
      ++mark;
    }
  }
}

}  // namespace
}  // namespace replayssm
