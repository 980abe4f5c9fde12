// A05. sglang fork, ReplaySSM for DFLASH and DSPARK (number unverified): a ring shorter than the
// draft window, or not a power of two, wrapped over live rows.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/oracle.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(A05, WindowsUpToTheFoldBlockMatchFloat64AtEveryPhase) {
  const HeadShape shape{GateKind::gdn, 1, 2};
  for (const auto& [block, window] : {std::pair{8, 4}, {8, 8}, {16, 16}, {32, 16}}) {
    for (const RingAccess access : {RingAccess::staged, RingAccess::shared}) {
      const FoldGeometry geometry = FoldGeometry::make(block, window, access).value();
      const OwnedOps owned = cpu_backend().make(2);
      const Tokens tokens = make_tokens(shape, 5 * block, 1);
      const std::vector<double> expected = oracle(tokens);
      for (int offset = 0; offset < block; offset += 3) {
        LayerMemory memory(*owned.ops, shape, geometry, {}, 1, 1);
        memory.admit(0, 0);
        std::vector<float> outputs;
        for (int done = 0; done < tokens.count;) {
          const int count = done < offset ? 1 : std::min(window, tokens.count - done);
          const auto out = run_step(memory, Route::window, {{0, &tokens, done, count}});
          outputs.insert(outputs.end(), out[0].begin(), out[0].end());
          done += count;
        }
        ASSERT_LT(relative_error(outputs, expected), 1e-6)
            << block << " " << window << " " << offset;
      }
    }
  }
}

TEST(A05, SizesThatCannotWorkAreRefusedByName) {
  const auto block24 = FoldGeometry::make(24, 4);
  ASSERT_FALSE(block24.ok());
  EXPECT_NE(block24.error().message.find("--linear-replayssm-cache-len: 24"), std::string::npos);
  const auto window17 = FoldGeometry::make(16, 17);
  ASSERT_FALSE(window17.ok());
  EXPECT_NE(window17.error().message.find("--speculative-num-draft-tokens: 17"), std::string::npos);
  EXPECT_FALSE(FoldGeometry::make(8, 9).ok());
}

TEST(A05, AnOperationCalledWithSeventeenTokensRefuses) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(1);
    const HeadShape shape{GateKind::gdn, 1, 1};
    const Tokens tokens = make_tokens(shape, 17, 1);
    LayerMemory memory(*owned.ops, shape, FoldGeometry::make(16, 16).value(), {}, 1, 1);
    memory.admit(0, 0);
    std::vector<float> out(17 * kValueDim);
    const RowTokens rows[] = {{RowIndex{0}, 0, 17, Phase::verify}};
    const Status status = owned.ops->window_step(
        {shape, memory.geometry(), memory.states(), memory.rings(), memory.cursors(), rows,
         tokens.qkv.data(), tokens.gate.data(), tokens.beta.data(), out.data()});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("tokens: 17"), std::string::npos);
  }
}

}  // namespace
}  // namespace replayssm::tests
