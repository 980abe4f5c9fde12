// Replay with a fold block of 1 and fp32 corrections is the packed step, bit for bit: both run the
// same functions in the same order.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

class PackedEquality : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(
    Cpu, PackedEquality,
    testing::Values(
        Variant{"gdn_f32", {GateKind::gdn, 2, 6}, {}, 1, 1},
        Variant{
            "gdn_bf16_state", {GateKind::gdn, 2, 4}, {DType::bf16, DType::bf16, DType::f32}, 1, 1},
        Variant{"kda_f32", {GateKind::kda, 2, 2}, {}, 1, 1},
        Variant{
            "kda_bf16_state", {GateKind::kda, 2, 2}, {DType::bf16, DType::bf16, DType::f32}, 1, 1}),
    [](const auto& test) { return test.param.name; });

TEST_P(PackedEquality, FoldBlockOneGivesOutputsAndStatesOfThePackedStep) {
  const OwnedOps owned = cpu_backend().make(2);
  const Variant& v = GetParam();
  const FoldGeometry geometry = FoldGeometry::make(1, 1, RingAccess::staged).value();
  const Tokens tokens = make_tokens(v.shape, 66, 11, {.bf16_values = v.types.key == DType::bf16});
  LayerMemory packed(*owned.ops, v.shape, geometry, v.types, 1, 1);
  LayerMemory replay(*owned.ops, v.shape, geometry, v.types, 1, 1);
  LayerMemory chunked(*owned.ops, v.shape, geometry, v.types, 1, 1);
  packed.admit(0, 0);
  replay.admit(0, 0);
  chunked.admit(0, 0);
  const auto chunk = run_step(chunked, Route::chunk, {{0, &tokens, 0, tokens.count}});
  const std::size_t width = tokens.out_stride();
  for (int i = 0; i < tokens.count; ++i) {
    const auto p = run_step(packed, Route::packed, {{0, &tokens, i, 1}});
    const auto r = run_step(replay, Route::window, {{0, &tokens, i, 1}});
    ASSERT_TRUE(same_bits(p, r)) << "token " << i;
    ASSERT_EQ(std::memcmp(p[0].data(), chunk[0].data() + i * width, width * sizeof(float)), 0);
  }
  // One more token: the window folds the last record first, into the packed step's state.
  Tokens more = make_tokens(v.shape, 67, 11, {.bf16_values = v.types.key == DType::bf16});
  const auto before = packed.slot_bytes(0);
  run_step(replay, Route::window, {{0, &more, 66, 1}});
  EXPECT_EQ(replay.slot_bytes(0), before);
}

// A packed chunk keeps its state on chip, and is the packed step over its tokens in order.
TEST_P(PackedEquality, PackedChunksGiveTheBitsOfSingleSteps) {
  const OwnedOps owned = cpu_backend().make(2);
  const Variant& v = GetParam();
  const FoldGeometry geometry = FoldGeometry::make(16, 1).value();
  const Tokens tokens = make_tokens(v.shape, 150, 12);
  LayerMemory single(*owned.ops, v.shape, geometry, v.types, 1, 1);
  const Trace expected = run_alone(single, tokens, {{Route::packed, 1}});
  for (int count : {2, 63, 64, 65, 150}) {
    LayerMemory memory(*owned.ops, v.shape, geometry, v.types, 1, 1);
    const Trace trace = run_alone(memory, tokens, {{Route::packed, count}});
    EXPECT_TRUE(same_bits(trace.outputs, expected.outputs)) << count;
    EXPECT_EQ(memory.slot_bytes(0), single.slot_bytes(0)) << count;
  }
}

// A packed step that writes to another slot leaves the base as it was.
TEST_P(PackedEquality, PackedStepReadsBaseAndWritesHome) {
  const OwnedOps owned = cpu_backend().make(1);
  const Variant& v = GetParam();
  const FoldGeometry geometry = FoldGeometry::make(16, 1).value();
  const Tokens tokens = make_tokens(v.shape, 10, 13);
  LayerMemory in_place(*owned.ops, v.shape, geometry, v.types, 1, 2);
  LayerMemory apart(*owned.ops, v.shape, geometry, v.types, 1, 2);
  in_place.admit(0, 0);
  apart.admit(0, 0);
  run_step(in_place, Route::packed, {{0, &tokens, 0, 9}});
  run_step(apart, Route::packed, {{0, &tokens, 0, 9}});
  const auto base = apart.slot_bytes(0);
  apart.home[0] = SlotId{1};
  EXPECT_TRUE(same_bits(run_step(in_place, Route::packed, {{0, &tokens, 9, 1}}),
                        run_step(apart, Route::packed, {{0, &tokens, 9, 1}})));
  EXPECT_EQ(apart.slot_bytes(0), base);
  EXPECT_EQ(apart.slot_bytes(1), in_place.slot_bytes(0));
  EXPECT_EQ(apart.base[0], SlotId{1});
}

}  // namespace
}  // namespace replayssm::tests
