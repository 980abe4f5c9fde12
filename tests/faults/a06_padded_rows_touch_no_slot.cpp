// A06. sglang fork, ReplaySSM for DFLASH and DSPARK (number unverified): padded rows ran the commit
// and touched slot 0. A row whose base is the null slot changes nothing.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(A06, OnlyTheLiveRowsSlotChanges) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    const HeadShape shape{GateKind::gdn, 1, 2};
    const FoldGeometry geometry = FoldGeometry::make(8, 4).value();
    const Tokens tokens = make_tokens(shape, 20, 1);
    LayerMemory memory(*owned.ops, shape, geometry, {}, 3, 4);
    memory.admit(0, 2);
    std::vector<std::vector<unsigned char>> before;
    for (int slot = 0; slot < 4; ++slot) before.push_back(memory.slot_bytes(slot));
    for (int i = 0; i < 20; i += 2) {
      run_step(memory, Route::window, {{1, &tokens, i, 2}, {0, &tokens, i, 2}, {2, &tokens, i, 2}});
    }
    for (int slot = 0; slot < 4; ++slot) {
      EXPECT_EQ(memory.slot_bytes(slot) == before[slot], slot != 2) << backend.name << " " << slot;
    }
    EXPECT_EQ(memory.committed[1], Depth{0});
    EXPECT_EQ(memory.base[2], kNullSlot);
  }
}

}  // namespace
}  // namespace replayssm::tests
