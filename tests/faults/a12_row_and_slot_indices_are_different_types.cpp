// A12. flashinfer-ai/flashinfer#3145, #3490: intermediate states were indexed by cache slot where
// the buffer was per batch row, out of bounds. Rows and slots have different types here, and a
// batch of two rows in slots 5 and 900 stays inside buffers of exactly two rows.
#include <gtest/gtest.h>

#include <type_traits>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

static_assert(!std::is_convertible_v<SlotId, RowIndex> && !std::is_convertible_v<RowIndex, SlotId>);
static_assert(!std::is_constructible_v<RowIndex, SlotId>);
static_assert(!std::is_convertible_v<int, RowIndex> && !std::is_convertible_v<int, SlotId>);

TEST(A12, TwoRowsInFarApartSlotsAreEachAsAlone) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    const HeadShape shape{GateKind::gdn, 1, 1};
    const FoldGeometry geometry = FoldGeometry::make(8, 4).value();
    const Tokens a = make_tokens(shape, 24, 1), b = make_tokens(shape, 24, 2);
    LayerMemory two(*owned.ops, shape, geometry, {}, 2, 901);
    LayerMemory one(*owned.ops, shape, geometry, {}, 1, 1);
    two.admit(0, 5);
    two.admit(1, 900);
    one.admit(0, 0);
    for (int i = 0; i < 24; i += 4) {
      const auto both = run_step(two, Route::window, {{0, &a, i, 4}, {1, &b, i, 4}});
      const auto alone = run_step(one, Route::window, {{0, &b, i, 4}});
      ASSERT_TRUE(same_bits(both[1], alone[0])) << backend.name;
    }
    EXPECT_EQ(two.slot_bytes(900), one.slot_bytes(0));
    EXPECT_NE(two.slot_bytes(5), two.slot_bytes(900));
  }
}

}  // namespace
}  // namespace replayssm::tests
