// What an operation must not read or write: null rows, shared bases, rows of a ring that are not
// pending, slots of others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

class Isolation : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { REPLAYSSM_NEEDS_BACKEND(owned_); }
  const Backend& backend() const { return GetParam().backend; }
  FoldGeometry geometry() const {
    return FoldGeometry::make(GetParam().block, GetParam().window, backend().ring_access).value();
  }
  Tokens tokens(int count, std::uint32_t seed) const {
    return make_tokens(GetParam().shape, count, seed,
                       {.bf16_values = GetParam().types.key == DType::bf16});
  }
  LayerMemory memory(int rows, int slots) const {
    return LayerMemory(owned_, GetParam().shape, geometry(), GetParam().types, rows, slots);
  }
  void expect_null_rows_untouched(Route route);

  OwnedOps owned_ = GetParam().backend.make(2);
};

INSTANTIATE_TEST_SUITE_P(Backends, Isolation, testing::ValuesIn(all_variants()),
                         [](const auto& test) { return test.param.name; });

bool finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

void Isolation::expect_null_rows_untouched(Route route) {
  const Tokens input = tokens(80, 1);
  LayerMemory all = memory(3, 3);
  const auto before = all.all_bytes();
  const int count = route == Route::chunk    ? 40
                    : route == Route::packed ? std::min(GetParam().window, backend().packed_max)
                                             : GetParam().window;
  const auto out = run_step(all, route, {{0, &input, 0, count}, {2, &input, 0, count}});
  for (const auto& row : out) {
    EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return x == 0; }));
  }
  EXPECT_EQ(all.all_bytes(), before);
  EXPECT_EQ(all.committed[0], Depth{0});

  // Beside a live row: the same output for it as alone, and only its slot changes.
  LayerMemory alone = memory(3, 3);
  alone.admit(1, 1);
  all.admit(1, 1);
  const auto solo = run_step(alone, route, {{1, &input, 0, count}});
  const auto mixed =
      run_step(all, route, {{0, &input, 0, count}, {1, &input, 0, count}, {2, &input, 0, count}});
  EXPECT_TRUE(same_bits(mixed[1], solo[0]));
  EXPECT_EQ(all.all_bytes(), alone.all_bytes());
}

TEST_P(Isolation, NullRowsOfAWindowTouchNothingAndGetZeros) {
  expect_null_rows_untouched(Route::window);
}
TEST_P(Isolation, NullRowsOfAChunkTouchNothingAndGetZeros) {
  expect_null_rows_untouched(Route::chunk);
}
TEST_P(Isolation, NullRowsOfAPackedStepTouchNothingAndGetZeros) {
  expect_null_rows_untouched(Route::packed);
}

TEST_P(Isolation, PoisonInRowsThatAreNotPendingReachesNoResult) {
  const int block = GetParam().block;
  const Tokens input = tokens(3 * block + 40, 2);
  for (const unsigned char poison :
       std::initializer_list<unsigned char>{0xff, 0x7f}) {  // NaN; bf16 and fp32 3e38 (or NaN)
    for (int start : {0, 1, 5, block - 1, block, block + 1, 2 * block}) {
      LayerMemory clean = memory(2, 4);
      LayerMemory dirty = memory(2, 4);
      for (LayerMemory* each : {&clean, &dirty}) {
        each->admit(0, 2);
        for (int i = 0; i < start; ++i) run_step(*each, Route::window, {{0, &input, i, 1}});
      }
      for (int i = start; i < start + 2 * block; i += 1) {
        dirty.poison_unread_records(0, poison);
        for (int slot = 0; slot < dirty.slots(); ++slot) {
          if (SlotId{slot} == dirty.base[0] && dirty.checkpoint[0].tokens > 0) continue;
          dirty.set_slot_bytes(slot,
                               std::vector<unsigned char>(dirty.slot_bytes(slot).size(), poison));
        }
        const auto a = run_step(clean, Route::window, {{0, &input, i, 1}});
        const auto b = run_step(dirty, Route::window, {{0, &input, i, 1}});
        ASSERT_TRUE(finite(b[0])) << "start " << start << " token " << i;
        ASSERT_TRUE(same_bits(a, b)) << "start " << start << " token " << i;
      }
      dirty.poison_unread_records(0, poison);
      const int from = start + 2 * block;
      EXPECT_TRUE(same_bits(feed(clean, Route::chunk, backend(), 0, input, from, 20),
                            feed(dirty, Route::chunk, backend(), 0, input, from, 20)));
    }
  }
}

// Inputs of drafts that end up rejected may be anything.
TEST_P(Isolation, PoisonInRejectedDraftsReachesNoLaterResult) {
  if (GetParam().window == 1) GTEST_SKIP() << "a window of one token has no draft to reject";
  const Tokens input = tokens(60, 3);
  Tokens poisoned = input;
  const float nan = std::nanf("");
  LayerMemory clean = memory(1, 1);
  LayerMemory dirty = memory(1, 1);
  clean.admit(0, 0);
  dirty.admit(0, 0);
  const int t_max = GetParam().window;
  const std::size_t width = input.out_stride();
  for (int done = 0, turn = 0; done + t_max <= input.count; ++turn) {
    const int accept = 1 + turn % (t_max - 1);
    poisoned = input;
    const int bad = done + accept;
    std::fill(poisoned.qkv.begin() + bad * input.shape.channels(), poisoned.qkv.end(), nan);
    std::fill(poisoned.gate.begin() + bad * input.gate_stride(), poisoned.gate.end(), nan);
    std::fill(poisoned.beta.begin() + bad * input.shape.value_heads, poisoned.beta.end(), nan);
    const auto a = run_step(clean, Route::window, {{0, &input, done, accept}});
    const auto b = run_step(dirty, Route::window, {{0, &poisoned, done, t_max, accept}});
    ASSERT_EQ(std::memcmp(a[0].data(), b[0].data(), accept * width * sizeof(float)), 0)
        << "at " << done;
    done += accept;
  }
  EXPECT_TRUE(same_bits(clean.take(0).state, dirty.take(0).state));
  EXPECT_EQ(clean.take(0).records, dirty.take(0).records);
}

TEST_P(Isolation, ForksReadOneBaseAndFoldIntoTheirOwnHomes) {
  const int block = GetParam().block;
  const Tokens shared = tokens(block + 3, 4);
  const int length = block + 3 + 2 * block;
  LayerMemory fork = memory(2, 4);
  fork.admit(0, 3);
  feed(fork, Route::chunk, backend(), 0, shared, 0, shared.count);
  // Row 1 shares row 0's base and copies its records; both fold elsewhere from now on.
  const PausedSequence parent = fork.take(0);
  fork.base[1] = fork.base[0];
  fork.committed[1] = fork.committed[0];
  fork.checkpoint[1] = fork.checkpoint[0];
  fork.home[0] = SlotId{0};
  fork.home[1] = SlotId{1};
  for (int j = 0; j < parent.cursor.pending(); ++j) {
    fork.set_record(1, parent.cursor.checkpoint + j, parent.records[j]);
  }
  const auto base = fork.slot_bytes(3);

  std::vector<Tokens> branches = {tokens(length, 5), tokens(length, 6)};
  std::vector<LayerMemory> solo;
  for (int row = 0; row < 2; ++row) {
    solo.push_back(memory(1, 1));
    solo[row].put(parent, 0, 0);
  }
  for (int i = shared.count; i < length; ++i) {
    const auto out =
        run_step(fork, Route::window, {{0, &branches[0], i, 1}, {1, &branches[1], i, 1}});
    for (int row = 0; row < 2; ++row) {
      const auto alone = run_step(solo[row], Route::window, {{0, &branches[row], i, 1}});
      ASSERT_TRUE(same_bits(out[row], alone[0])) << "token " << i << " row " << row;
    }
    ASSERT_EQ(fork.slot_bytes(3), base) << "token " << i;
  }
  EXPECT_EQ(fork.base[0], SlotId{0});
  EXPECT_EQ(fork.base[1], SlotId{1});
}

TEST_P(Isolation, ASequenceContinuesFromItsSerialisedParts) {
  const Tokens input = tokens(70, 7);
  LayerMemory whole = memory(1, 1);
  const Trace expected = run_alone(whole, input, {{Route::window, 1}});
  const std::size_t width = input.out_stride();
  for (int pause = 1; pause < input.count; pause += 6) {
    LayerMemory first = memory(1, 1);
    Tokens prefix = input;
    prefix.count = pause;
    run_alone(first, prefix, {{Route::window, GetParam().window}});
    LayerMemory second = memory(3, 5);
    second.put(first.take(0), 2, 4);
    for (int i = pause; i < input.count; ++i) {
      const auto out = run_step(second, Route::window, {{2, &input, i, 1}});
      ASSERT_EQ(std::memcmp(out[0].data(), expected.outputs.data() + i * width, width * 4), 0)
          << "paused at " << pause << ", token " << i;
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
