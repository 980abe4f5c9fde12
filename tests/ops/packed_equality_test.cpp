// Replay with a fold block of 1 and fp32 corrections is the packed step, bit for bit: both run the
// same functions in the same order.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

class PackedEquality : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { REPLAYSSM_NEEDS_BACKEND(backend().make(1)); }
  const Backend& backend() const { return GetParam().backend; }
  FoldGeometry geometry(int block) const {
    return FoldGeometry::make(block, 1, backend().ring_access).value();
  }
  Tokens tokens(int count, std::uint32_t seed) const {
    return make_tokens(GetParam().shape, count, seed,
                       {.bf16_values = GetParam().types.key == DType::bf16});
  }
};

INSTANTIATE_TEST_SUITE_P(
    Backends, PackedEquality,
    testing::Values(
        Variant{"gdn_f32", {GateKind::gdn, 2, 6}, {}, 1, 1},
        Variant{
            "gdn_bf16_state", {GateKind::gdn, 2, 4}, {DType::bf16, DType::bf16, DType::f32}, 1, 1},
        Variant{"kda_f32", {GateKind::kda, 2, 2}, {}, 1, 1},
        Variant{
            "kda_bf16_state", {GateKind::kda, 2, 2}, {DType::bf16, DType::bf16, DType::f32}, 1, 1},
        Variant{"cuda_gdn_f32",
                {GateKind::gdn, 2, 6},
                {DType::f32, DType::bf16, DType::f32},
                1,
                1,
                cuda_backend()},
        Variant{"cuda_kda_f32",
                {GateKind::kda, 2, 2},
                {DType::f32, DType::bf16, DType::f32},
                1,
                1,
                cuda_backend()}),
    [](const auto& test) { return test.param.name; });

TEST_P(PackedEquality, FoldBlockOneGivesOutputsAndStatesOfThePackedStep) {
  const OwnedOps owned = backend().make(2);
  const Variant& v = GetParam();
  const Tokens input = tokens(66, 11);
  LayerMemory packed(owned, v.shape, geometry(1), v.types, 1, 1);
  LayerMemory replay(owned, v.shape, geometry(1), v.types, 1, 1);
  packed.admit(0, 0);
  replay.admit(0, 0);
  for (int i = 0; i < input.count; ++i) {
    const auto p = run_step(packed, Route::packed, {{0, &input, i, 1}});
    const auto r = run_step(replay, Route::window, {{0, &input, i, 1}});
    ASSERT_TRUE(same_bits(p, r)) << "token " << i;
  }
  // One more token: the window folds the last record first, into the packed step's state.
  const Tokens more = tokens(67, 11);
  const auto before = packed.slot_bytes(0);
  run_step(replay, Route::window, {{0, &more, 66, 1}});
  EXPECT_EQ(replay.slot_bytes(0), before);
}

TEST_P(PackedEquality, FoldBlockOneGivesTheSameInOneChunk) {
  const OwnedOps owned = backend().make(2);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const Variant& v = GetParam();
  const Tokens input = tokens(66, 11);
  LayerMemory packed(owned, v.shape, geometry(1), v.types, 1, 1);
  LayerMemory chunked(owned, v.shape, geometry(1), v.types, 1, 1);
  const Trace expected = run_alone(packed, input, {{Route::packed, 1}});
  EXPECT_TRUE(same_bits(run_alone(chunked, input, {{Route::chunk, input.count}}).outputs,
                        expected.outputs));
}

// A packed chunk keeps its state on chip, and is the packed step over its tokens in order.
TEST_P(PackedEquality, PackedChunksGiveTheBitsOfSingleSteps) {
  REPLAYSSM_NEEDS(backend(), "packed steps of several tokens are", backend().packed_max > 1);
  const OwnedOps owned = backend().make(2);
  const Variant& v = GetParam();
  const Tokens input = tokens(150, 12);
  LayerMemory single(owned, v.shape, geometry(16), v.types, 1, 1);
  const Trace expected = run_alone(single, input, {{Route::packed, 1}});
  for (int count : {2, 63, 64, 65, 150}) {
    LayerMemory memory(owned, v.shape, geometry(16), v.types, 1, 1);
    const Trace trace = run_alone(memory, input, {{Route::packed, count}});
    EXPECT_TRUE(same_bits(trace.outputs, expected.outputs)) << count;
    EXPECT_EQ(memory.slot_bytes(0), single.slot_bytes(0)) << count;
  }
}

// A packed step that writes to another slot leaves the base as it was.
TEST_P(PackedEquality, PackedStepReadsBaseAndWritesHome) {
  const OwnedOps owned = backend().make(1);
  const Variant& v = GetParam();
  const Tokens input = tokens(10, 13);
  LayerMemory in_place(owned, v.shape, geometry(16), v.types, 1, 2);
  LayerMemory apart(owned, v.shape, geometry(16), v.types, 1, 2);
  in_place.admit(0, 0);
  apart.admit(0, 0);
  feed(in_place, Route::packed, backend(), 0, input, 0, 9);
  feed(apart, Route::packed, backend(), 0, input, 0, 9);
  const auto base = apart.slot_bytes(0);
  apart.home[0] = SlotId{1};
  EXPECT_TRUE(same_bits(run_step(in_place, Route::packed, {{0, &input, 9, 1}}),
                        run_step(apart, Route::packed, {{0, &input, 9, 1}})));
  EXPECT_EQ(apart.slot_bytes(0), base);
  EXPECT_EQ(apart.slot_bytes(1), in_place.slot_bytes(0));
  EXPECT_EQ(apart.base[0], SlotId{1});
}

}  // namespace
}  // namespace replayssm::tests
