// fold, export, import and advance.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/oracle.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

class Folding : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { REPLAYSSM_NEEDS_BACKEND(owned_); }
  FoldGeometry geometry() const {
    return FoldGeometry::make(GetParam().block, GetParam().window, GetParam().backend.ring_access)
        .value();
  }
  Tokens tokens(int count, std::uint32_t seed) const {
    return make_tokens(GetParam().shape, count, seed,
                       {.bf16_values = GetParam().types.key == DType::bf16});
  }
  LayerMemory memory(int rows, int slots) const {
    return LayerMemory(owned_, GetParam().shape, geometry(), GetParam().types, rows, slots);
  }
  OwnedOps owned_ = GetParam().backend.make(2);
};

INSTANTIATE_TEST_SUITE_P(Backends, Folding, testing::ValuesIn(all_variants()),
                         [](const auto& test) { return test.param.name; });

Status fold(LayerMemory& memory, std::vector<FoldRow> rows) {
  const StateView states[] = {memory.states()};
  const RingView rings[] = {memory.rings()};
  std::vector<Lent<float>> buffers;
  for (FoldRow& row : rows) {
    Lent<float>& lent = buffers.emplace_back(memory.backend(), row.buffer);
    row.buffer = {lent.put(), row.buffer.size()};
  }
  const Status status = memory.ops().fold({memory.shape(), memory.geometry(), states, rings, rows});
  for (Lent<float>& buffer : buffers) buffer.get();
  memory.fetch();
  return status;
}

// Everything pending, into a buffer [HV, V, K]; the sequence stays as it is.
std::vector<float> exported(LayerMemory& memory, int row) {
  std::vector<float> buffer(memory.shape().state_elements(), std::nanf(""));
  const Status status =
      fold(memory, {{RowIndex{row}, memory.checkpoint[row], memory.cursor(row).pending(),
                     memory.base[row], kNullSlot, buffer}});
  EXPECT_TRUE(status.ok()) << status.error().message;
  return buffer;
}

TEST_P(Folding, FoldingABlockGivesTheBitsOfTheStepThatFoldsIt) {
  const int block = GetParam().block;
  const Tokens input = tokens(2 * block + 1, 1);
  LayerMemory step = memory(1, 3);
  step.admit(0, 0);
  for (int i = 0; i < 2 * block; ++i) run_step(step, Route::window, {{0, &input, i, 1}});
  ASSERT_EQ(step.cursor(0).pending(), block);
  // Into another slot, in place, and into a buffer.
  ASSERT_TRUE(
      fold(step, {{RowIndex{0}, step.checkpoint[0], block, SlotId{0}, SlotId{2}, {}}}).ok());
  const std::vector<float> buffer = exported(step, 0);
  const auto apart = step.slot_bytes(2);
  run_step(step, Route::window, {{0, &input, 2 * block, 1}});
  EXPECT_EQ(step.checkpoint[0], Depth{2 * block});
  EXPECT_EQ(step.slot_bytes(0), apart);
  if (GetParam().types.state == DType::f32) {
    std::vector<float> state(GetParam().shape.state_elements());
    ASSERT_TRUE(step.export_state(SlotId{0}, state).ok());
    EXPECT_TRUE(same_bits(state, buffer));
  }
}

TEST_P(Folding, ExportAtAnyDepthIsTheStateThereAndChangesNothing) {
  const int block = GetParam().block;
  const Tokens input = tokens(2 * block + GetParam().window, 2);
  LayerMemory sequence = memory(1, 1);
  sequence.admit(0, 0);
  for (int i = 0; i < 2 * block; ++i) {
    const auto before = sequence.all_bytes();
    const std::vector<float> state = exported(sequence, 0);
    ASSERT_EQ(sequence.all_bytes(), before);
    Tokens prefix = input;
    prefix.count = i;
    std::vector<double> expected;
    oracle(prefix, &expected);  // [HV][K][V]
    std::vector<double> transposed(expected.size());
    for (int h = 0; h < input.shape.value_heads; ++h) {
      for (int v = 0; v < kValueDim; ++v) {
        for (int k = 0; k < kKeyDim; ++k) {
          transposed[(h * kValueDim + v) * kKeyDim + k] =
              expected[(h * kKeyDim + k) * kValueDim + v];
        }
      }
    }
    // fp32: 2^-24 per operation over at most 64 of them. bf16 records and one rounding a block:
    // 2^-9 relative each.
    const double tolerance = GetParam().types.correction == DType::bf16 ? 4e-3 : 1e-6;
    ASSERT_LE(relative_error(state, transposed), tolerance) << "depth " << i;
    run_step(sequence, Route::window, {{0, &input, i, 1}});
  }
}

// At p = L + 1 .. L + T_max - 1 an export folds one block as a step would, then the rest.
TEST_P(Folding, ExportBeyondOneBlockRoundsWhereStepsRound) {
  const int block = GetParam().block;
  const int t_max = GetParam().window;
  if (t_max == 1) GTEST_SKIP() << "a window of one token leaves at most one block";
  const Tokens input = tokens(3 * block, 3);
  LayerMemory sequence = memory(1, 2);
  sequence.admit(0, 0);
  for (int i = 0; i < 2 * block - 1; ++i) run_step(sequence, Route::window, {{0, &input, i, 1}});
  run_step(sequence, Route::window, {{0, &input, 2 * block - 1, t_max}});
  ASSERT_EQ(sequence.cursor(0).pending(), block + t_max - 1);
  const std::vector<float> at_once = exported(sequence, 0);
  ASSERT_TRUE(
      fold(sequence, {{RowIndex{0}, sequence.checkpoint[0], block, SlotId{0}, SlotId{1}, {}}})
          .ok());
  std::vector<float> in_two(at_once.size());
  ASSERT_TRUE(fold(sequence, {{RowIndex{0}, sequence.checkpoint[0] + block, t_max - 1, SlotId{1},
                               kNullSlot, in_two}})
                  .ok());
  EXPECT_TRUE(same_bits(at_once, in_two));
}

TEST_P(Folding, NullRowsOfAFoldTouchNothing) {
  LayerMemory all = memory(1, 2);
  const auto before = all.all_bytes();
  std::vector<float> buffer(all.shape().state_elements(), 7.0f);
  EXPECT_TRUE(fold(all, {{RowIndex{0}, Depth{0}, 3, kNullSlot, SlotId{1}, {}},
                         {RowIndex{0}, Depth{0}, 3, kNullSlot, kNullSlot, buffer}})
                  .ok());
  EXPECT_EQ(all.all_bytes(), before);
  EXPECT_EQ(buffer, std::vector<float>(buffer.size(), 7.0f));
}

TEST_P(Folding, ImportedStatesAreExportedUnchanged) {
  LayerMemory all = memory(1, 2);
  std::vector<float> state(all.shape().state_elements());
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i] = static_cast<float>(i % 251) - 125.0f;  // exact in bf16
  }
  std::vector<float> back(state.size());
  const auto other = all.slot_bytes(0);
  ASSERT_TRUE(all.import_state(SlotId{1}, state).ok());
  ASSERT_TRUE(all.export_state(SlotId{1}, back).ok());
  EXPECT_EQ(back, state);
  EXPECT_EQ(all.slot_bytes(0), other);
}

// ---- advance ----

struct Cursors {
  std::vector<Depth> committed, checkpoint;
  std::vector<SlotId> base, home;
};

class Advance : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { REPLAYSSM_NEEDS_BACKEND(owned_); }
  // One advance over cursors on the host.
  Status advance(const FoldGeometry& geometry, Recurrence recurrence, Cursors& c,
                 const std::vector<RowTokens>& rows, const std::vector<int>& accepted) {
    BackendMemory* const memory = owned_.memory.get();
    Lent<Depth> committed(memory, c.committed), checkpoint(memory, c.checkpoint);
    Lent<SlotId> base(memory, c.base), home(memory, c.home);
    const CursorView view{committed.put(), checkpoint.put(), base.put(), home.put(),
                          static_cast<int>(c.base.size())};
    const Status status = owned_.ops->advance({geometry, recurrence, view, rows, accepted});
    committed.get(), checkpoint.get(), base.get(), home.get();
    return status;
  }
  OwnedOps owned_ = GetParam().make(1);
};
INSTANTIATE_TEST_SUITE_P(Backends, Advance, testing::ValuesIn(all_backends()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Advance, MovesTheCheckpointByTheBlocksThatTheStepFolded) {
  const FoldGeometry geometry = FoldGeometry::make(16, 8).value();
  const SlotId a{3}, b{5};
  Cursors c{{Depth{15}, Depth{16}, Depth{23}, Depth{100}, Depth{40}},
            {Depth{0}, Depth{0}, Depth{0}, Depth{96}, Depth{32}},
            {a, a, a, a, kNullSlot},
            {b, b, b, b, b}};
  const std::vector<RowTokens> rows = {{RowIndex{0}, 0, 8, Phase::verify},
                                       {RowIndex{1}, 8, 1, Phase::decode},
                                       {RowIndex{2}, 9, 8, Phase::verify},
                                       {RowIndex{3}, 17, 29, Phase::prefill},
                                       {RowIndex{4}, 46, 1, Phase::decode}};
  const std::vector<int> accepted = {8, 1, 3, 29, 1};
  ASSERT_TRUE(advance(geometry, Recurrence::replay, c, rows, accepted).ok());
  EXPECT_EQ(c.committed, (std::vector<Depth>{{23}, {17}, {26}, {129}, {40}}));
  EXPECT_EQ(c.checkpoint, (std::vector<Depth>{{0}, {16}, {16}, {128}, {32}}));
  EXPECT_EQ(c.base, (std::vector<SlotId>{a, b, b, b, kNullSlot}));
}

TEST_P(Advance, PackedMovesTheCheckpointWithTheTokens) {
  Cursors c{
      {Depth{7}, Depth{9}}, {Depth{7}, Depth{9}}, {SlotId{0}, SlotId{1}}, {SlotId{2}, SlotId{3}}};
  const std::vector<RowTokens> rows = {{RowIndex{0}, 0, 1, Phase::decode},
                                       {RowIndex{1}, 1, 1, Phase::decode}};
  const std::vector<int> accepted = {1, 0};
  ASSERT_TRUE(advance(FoldGeometry(), Recurrence::packed, c, rows, accepted).ok());
  EXPECT_EQ(c.committed, (std::vector<Depth>{{8}, {9}}));
  EXPECT_EQ(c.checkpoint, (std::vector<Depth>{{8}, {9}}));
  EXPECT_EQ(c.base, (std::vector<SlotId>{SlotId{2}, SlotId{1}}));
}

TEST_P(Advance, RefusesCountsThatNoStepCanAccept) {
  Cursors c{{Depth{7}}, {Depth{0}}, {SlotId{0}}, {SlotId{0}}};
  const std::vector<RowTokens> window = {{RowIndex{0}, 0, 4, Phase::verify}};
  const std::vector<RowTokens> chunk = {{RowIndex{0}, 0, 4, Phase::prefill}};
  const auto moved = [&](const std::vector<RowTokens>& rows, const std::vector<int>& accepted) {
    return advance(FoldGeometry(), Recurrence::replay, c, rows, accepted);
  };
  EXPECT_FALSE(moved(window, {5}).ok());
  EXPECT_FALSE(moved(window, {-1}).ok());
  EXPECT_FALSE(moved(chunk, {3}).ok());
  EXPECT_FALSE(moved(window, {}).ok());
  EXPECT_EQ(c.committed[0], Depth{7});
}

}  // namespace
}  // namespace replayssm::tests
