// A result is a pure function of the tokens before it: equal bits for every split into windows and
// chunks, every batch, every thread count, every ring size.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/backends.h"
#include "ops/layer_memory.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

class Exactness : public testing::TestWithParam<Variant> {
 protected:
  static constexpr int kTokens = 75;

  const Backend& backend() const { return GetParam().backend; }
  FoldGeometry geometry(RingAccess access) const {
    return FoldGeometry::make(GetParam().block, GetParam().window, access).value();
  }
  Tokens tokens(std::uint32_t seed) const {
    return make_tokens(GetParam().shape, kTokens, seed,
                       {.bf16_values = GetParam().types.key == DType::bf16});
  }
  LayerMemory memory(const OwnedOps& owned, int rows, int slots) const {
    return memory(owned, rows, slots, backend().ring_access);
  }
  LayerMemory memory(const OwnedOps& owned, int rows, int slots, RingAccess access) const {
    return LayerMemory(owned, GetParam().shape, geometry(access), GetParam().types, rows, slots);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Exactness, testing::ValuesIn(all_variants()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Exactness, AnySplitIntoWindowsAndChunksGivesTheSameBits) {
  const OwnedOps owned = backend().make(1);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const Tokens input = tokens(1);
  LayerMemory solo = memory(owned, 1, 1);
  const Trace decode = run_alone(solo, input, {{Route::window, 1}});
  ASSERT_TRUE(std::all_of(decode.outputs.begin(), decode.outputs.end(),
                          [](float x) { return std::isfinite(x); }));
  const int t = GetParam().window;
  const std::vector<std::vector<Span>> splits = {
      {{Route::window, t}},
      {{Route::window, 1}, {Route::window, t}, {Route::window, std::max(1, t - 1)}},
      {{Route::chunk, kTokens}},
      {{Route::chunk, 1}},
      {{Route::chunk, 7}, {Route::window, t}, {Route::chunk, 33}},
      {{Route::window, t}, {Route::chunk, 16}, {Route::window, std::min(2, t)}, {Route::chunk, 1}},
      {{Route::chunk, 64}, {Route::window, 1}}};
  for (std::size_t i = 0; i < splits.size(); ++i) {
    LayerMemory other = memory(owned, 1, 1);
    const Trace trace = run_alone(other, input, splits[i]);
    EXPECT_TRUE(same_bits(trace.outputs, decode.outputs)) << "split " << i;
    // Checkpoints of one depth are equal, and so are the records that both still hold.
    if (trace.end.cursor == decode.end.cursor) {
      EXPECT_TRUE(same_bits(trace.end.state, decode.end.state)) << "split " << i;
      EXPECT_EQ(trace.end.records, decode.end.records) << "split " << i;
    }
  }
}

TEST_P(Exactness, ChunksLeaveTheCheckpointAndRecordsThatDecodeLeaves) {
  const OwnedOps owned = backend().make(1);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const Tokens input = tokens(2);
  const int block = GetParam().block;
  for (int count :
       {1, block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1, 64, 65, kTokens}) {
    if (count < 1 || count > kTokens) continue;
    Tokens some = input;
    some.count = count;
    LayerMemory a = memory(owned, 1, 1);
    LayerMemory b = memory(owned, 1, 1);
    const Trace decode = run_alone(a, some, {{Route::window, 1}});
    const Trace chunk = run_alone(b, some, {{Route::chunk, count}});
    ASSERT_EQ(decode.end.cursor, chunk.end.cursor) << count;
    EXPECT_TRUE(same_bits(decode.end.state, chunk.end.state)) << count;
    EXPECT_EQ(decode.end.records, chunk.end.records) << count;
  }
}

// Every number of pending records, every window: p = 0 .. L + T_max - 1.
TEST_P(Exactness, EveryRingPhaseWithEveryWindowGivesTheSameBits) {
  const OwnedOps owned = backend().make(1);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const Tokens input = tokens(3);
  LayerMemory solo = memory(owned, 1, 1);
  const Trace decode = run_alone(solo, input, {{Route::window, 1}});
  const int t_max = GetParam().window;
  const int block = GetParam().block;
  const std::size_t width = static_cast<std::size_t>(GetParam().shape.value_heads) * kValueDim;
  for (int start = block; start <= 2 * block - 1; ++start) {
    // Decode to `start` and then one large window leave up to L + T_max - 1 pending.
    for (int grow : {0, t_max}) {
      LayerMemory base = memory(owned, 1, 1);
      Tokens prefix = input;
      prefix.count = start;
      run_alone(base, prefix, {{Route::window, 1}});
      if (grow > 0) run_step(base, Route::window, {{0, &input, start, grow}});
      const PausedSequence paused = base.take(0);
      for (int window = 1; window <= t_max; ++window) {
        const int from = start + grow;
        if (from + window > kTokens) continue;
        LayerMemory other = memory(owned, 1, 1);
        other.put(paused, 0, 0);
        const auto out = run_step(other, Route::window, {{0, &input, from, window}});
        ASSERT_EQ(std::memcmp(out[0].data(), decode.outputs.data() + from * width,
                              out[0].size() * sizeof(float)),
                  0)
            << "pending " << paused.cursor.pending() << ", window " << window;
      }
    }
  }
}

TEST_P(Exactness, TheSmallAndTheLargeRingGiveTheSameBits) {
  REPLAYSSM_NEEDS(backend(), "rings that an owner stages are",
                  backend().ring_access == RingAccess::staged);
  const OwnedOps owned = backend().make(1);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const Tokens input = tokens(4);
  const std::vector<Span> split = {{Route::window, GetParam().window}, {Route::window, 1}};
  LayerMemory staged = memory(owned, 1, 1, RingAccess::staged);
  LayerMemory shared = memory(owned, 1, 1, RingAccess::shared);
  EXPECT_TRUE(
      same_bits(run_alone(staged, input, split).outputs, run_alone(shared, input, split).outputs));
}

// With more threads than key heads the value heads of one ring run on different threads, at
// p = L + T_max - 1 in the smallest ring, where every appended row replaces a pending one.
TEST_P(Exactness, ValueHeadsOnDifferentThreadsGiveTheSameBits) {
  const Tokens input = tokens(5);
  const int t_max = GetParam().window;
  const std::vector<Span> split = {
      {Route::window, 1}, {Route::window, t_max}, {Route::window, t_max}, {Route::chunk, 19}};
  const OwnedOps one = backend().make(1);
  REPLAYSSM_NEEDS_BACKEND(one);
  LayerMemory solo = memory(one, 1, 1);
  const Trace expected = run_alone(solo, input, split);
  for (int threads : {2, 5, 8}) {
    const OwnedOps many = backend().make(threads);
    LayerMemory other = memory(many, 1, 1);
    const Trace trace = run_alone(other, input, split);
    EXPECT_TRUE(same_bits(trace.outputs, expected.outputs)) << threads << " threads";
    EXPECT_TRUE(same_bits(trace.end.state, expected.end.state)) << threads << " threads";
    EXPECT_EQ(trace.end.records, expected.end.records) << threads << " threads";
  }
}

TEST_P(Exactness, ARowDoesNotDependOnItsBatchMatesOrItsPlace) {
  const OwnedOps owned = backend().make(3);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const Tokens input = tokens(6);
  LayerMemory solo = memory(owned, 1, 1);
  const Trace expected = run_alone(solo, input, {{Route::window, 1}});
  const int rows = 5;
  const std::size_t width = static_cast<std::size_t>(GetParam().shape.value_heads) * kValueDim;
  for (int place = 0; place < rows; ++place) {
    LayerMemory crowd = memory(owned, rows, rows);
    std::vector<Tokens> mates;
    for (int row = 0; row < rows; ++row) {
      crowd.admit(row, rows - 1 - row);
      mates.push_back(row == place ? input : tokens(100 + static_cast<std::uint32_t>(row)));
    }
    std::vector<float> outputs;
    for (int i = 0; i < 40; ++i) {
      std::vector<Part> parts;
      for (int row = 0; row < rows; ++row) {
        // Mates take windows of their own sizes while they have tokens, in changing order.
        const int done = crowd.committed[row].tokens;
        const int count =
            row == place ? 1 : std::min(1 + (i + row) % GetParam().window, kTokens - done);
        if (count > 0) parts.push_back({row, &mates[row], done, count});
      }
      std::rotate(parts.begin(), parts.begin() + i % parts.size(), parts.end());
      const auto out = run_step(crowd, Route::window, parts);
      for (std::size_t p = 0; p < parts.size(); ++p) {
        if (parts[p].row == place) {
          outputs.insert(outputs.end(), out[p].begin(), out[p].end());
        }
      }
    }
    ASSERT_EQ(outputs.size(), 40 * width);
    EXPECT_EQ(std::memcmp(outputs.data(), expected.outputs.data(), outputs.size() * 4), 0)
        << "place " << place;
  }
}

TEST_P(Exactness, RejectedTokensLeaveNoTrace) {
  const OwnedOps owned = backend().make(2);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const Tokens input = tokens(7);
  const Tokens wrong = tokens(8);
  LayerMemory solo = memory(owned, 1, 1);
  const Trace expected = run_alone(solo, input, {{Route::window, 1}});
  const int t_max = GetParam().window;
  for (int pattern = 1; pattern <= t_max; ++pattern) {
    LayerMemory other = memory(owned, 1, 1);
    other.admit(0, 0);
    const std::size_t width = static_cast<std::size_t>(GetParam().shape.value_heads) * kValueDim;
    for (int done = 0, turn = 0; done + t_max < kTokens; ++turn) {
      // The first `accept` tokens are right, the rest of the window is rejected.
      const int accept = turn % 2 == 0 ? pattern : 1 + turn % t_max;
      Tokens window = input;
      for (int i = done + accept; i < done + t_max; ++i) {
        std::copy_n(wrong.qkv.begin() + i * window.shape.channels(), window.shape.channels(),
                    window.qkv.begin() + i * window.shape.channels());
      }
      const auto out = run_step(other, Route::window, {{0, &window, done, t_max, accept}});
      ASSERT_EQ(std::memcmp(out[0].data(), expected.outputs.data() + done * width,
                            accept * width * sizeof(float)),
                0)
          << "pattern " << pattern << " at " << done;
      // Whatever lies in rows that are not pending may be anything from now on.
      other.poison_unread_records(0, turn % 2 == 0 ? 0xff : 0x7f);
      done += accept;
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
