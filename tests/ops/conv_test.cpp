// conv_window and conv_chunk.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/bfloat16.h"
#include "ops/backends.h"
#include "replay/cursor.h"

namespace replayssm::tests {
namespace {

struct ConvVariant {
  std::string name;
  Backend backend;
  DType type = DType::f32;
  int channels = 300;
  int threads = 2;
};

std::ostream& operator<<(std::ostream& to, const ConvVariant& v) { return to << v.name; }

class Convolution : public testing::TestWithParam<ConvVariant> {
 protected:
  void SetUp() override {
    const Backend& backend = GetParam().backend;
    REPLAYSSM_NEEDS_BACKEND(backend.make(1));
  }
};

INSTANTIATE_TEST_SUITE_P(
    Backends, Convolution,
    testing::Values(ConvVariant{"reference_f32", reference_backend()},
                    ConvVariant{"reference_bf16", reference_backend(), DType::bf16},
                    ConvVariant{"cpu_f32", cpu_backend()},
                    ConvVariant{"cpu_bf16", cpu_backend(), DType::bf16, 129},
                    ConvVariant{"cpu_few_channels", cpu_backend(), DType::f32, 5, 1},
                    ConvVariant{"emulated_cuda_bf16", emulated_cuda_backend(), DType::bf16, 304},
                    ConvVariant{"cuda_bf16", cuda_backend(), DType::bf16, 304}),
    [](const auto& test) { return test.param.name; });

constexpr int kBlock = 16;

// Conv memory of some rows, all NaN at first.
struct ConvMemory {
  ConvMemory(DType type_, int channels_, int rows_, int slots_, int window)
      : type(type_),
        channels(channels_),
        rows(rows_),
        slots(slots_),
        geometry(FoldGeometry::make(kBlock, window).value()),
        ring(static_cast<std::size_t>(rows) * geometry.conv_rows() * channels * size_of(type),
             0xff),
        tail(static_cast<std::size_t>(slots) * 3 * channels * size_of(type), 0xff),
        committed(rows),
        checkpoint(rows),
        base(rows, kNullSlot),
        home(rows, kNullSlot) {}

  void admit(int row, int slot) { base[row] = home[row] = SlotId{slot}; }

  float value(const std::vector<unsigned char>& from, std::size_t index) const {
    if (type == DType::bf16) {
      bf16 x;
      std::memcpy(&x, from.data() + index * 2, 2);
      return to_float(x);
    }
    float x;
    std::memcpy(&x, from.data() + index * 4, 4);
    return x;
  }

  DType type;
  int channels, rows, slots;
  FoldGeometry geometry;
  std::vector<unsigned char> ring, tail;
  std::vector<Depth> committed, checkpoint;
  std::vector<SlotId> base, home;
};

struct ConvInput {
  int channels;
  std::vector<float> weight;  // [channels, 4]
  std::vector<float> x;       // [count, channels]
  int count;
};

ConvInput make_input(const ConvVariant& v, int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  ConvInput input{v.channels, {}, {}, count};
  for (int i = 0; i < v.channels * kConvWidth; ++i) input.weight.push_back(normal(random));
  for (int i = 0; i < count * v.channels; ++i) {
    const float x = 2 * normal(random);
    input.x.push_back(v.type == DType::bf16 ? round_to_bf16(x) : x);
  }
  return input;
}

std::vector<double> expected_outputs(const ConvInput& input) {
  std::vector<double> out;
  for (int i = 0; i < input.count; ++i) {
    for (int c = 0; c < input.channels; ++c) {
      double sum = 0;
      for (int tap = 0; tap < 4; ++tap) {
        const int from = i - 3 + tap;
        if (from >= 0) {
          sum +=
              static_cast<double>(input.weight[c * 4 + tap]) * input.x[from * input.channels + c];
        }
      }
      out.push_back(sum / (1 + std::exp(-sum)));
    }
  }
  return out;
}

// Tokens [from, from + count) of one row in a step.
struct ConvPart {
  int row;
  const ConvInput* input;
  int from, count, accepted;
};

// The outputs of all parts, one after the other; in place of the input where the backend and
// `in_place` allow it, or apart.
std::vector<float> step(const OwnedOps& owned, ConvMemory& m, bool chunk,
                        const std::vector<ConvPart>& parts, bool in_place,
                        DType round_to = DType::f32) {
  const auto width = static_cast<std::size_t>(m.channels);
  std::vector<float> x;
  std::vector<RowTokens> rows;
  std::vector<int> taken;
  int total = 0;
  for (const ConvPart& part : parts) {
    const auto begin = part.input->x.begin() + static_cast<std::ptrdiff_t>(part.from * width);
    x.insert(x.end(), begin, begin + static_cast<std::ptrdiff_t>(part.count * width));
    rows.push_back({RowIndex{part.row}, total, part.count, chunk ? Phase::prefill : Phase::verify});
    taken.push_back(chunk ? part.count : part.accepted);
    total += part.count;
  }
  std::vector<float> apart(x.size(), std::nanf(""));
  std::vector<bf16> x_bf16;
  for (float each : x) x_bf16.push_back(to_bf16(each));
  const bool bf16_input = owned.ops->activation_type() == DType::bf16;
  in_place = in_place && !bf16_input;
  BackendMemory* const memory = owned.memory.get();
  Lent<unsigned char> ring(memory, m.ring), tail(memory, m.tail);
  Lent<Depth> committed(memory, m.committed), checkpoint(memory, m.checkpoint);
  Lent<SlotId> base(memory, m.base), home(memory, m.home);
  Lent<float> input(memory, x), out(memory, in_place ? x : apart);
  Lent<bf16> input_bf16(memory, x_bf16);
  Lent<const float> weight(memory, parts.front().input->weight);
  ConvArgs args;
  args.geometry = m.geometry;
  args.rings = {ring.put(), m.type, m.rows, m.geometry.conv_rows(), m.channels};
  args.tails = {tail.put(), m.type, 3 * width, m.slots, m.channels};
  args.cursors = {committed.put(), checkpoint.put(), base.put(), home.put(), m.rows};
  args.rows = rows;
  args.weight = weight.put();
  if (bf16_input) {
    args.input_bf16 = input_bf16.put();
  } else {
    args.input = input.put();
  }
  args.out = out.put();
  args.round_to = round_to;
  const Status status = chunk ? owned.ops->conv_chunk(args) : owned.ops->conv_window(args);
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_TRUE(owned.ops->advance({m.geometry, Recurrence::replay, args.cursors, rows, taken}).ok());
  ring.get(), tail.get(), committed.get(), checkpoint.get(), base.get(), out.get();
  return in_place ? x : apart;
}

std::vector<float> step(const OwnedOps& owned, ConvMemory& m, bool chunk, int row,
                        const ConvInput& input, int from, int count, int accepted, bool in_place,
                        DType round_to = DType::f32) {
  return step(owned, m, chunk, {{row, &input, from, count, accepted}}, in_place, round_to);
}

TEST_P(Convolution, AnySplitMatchesTheDefinitionAndEveryOtherSplit) {
  const ConvVariant& v = GetParam();
  const OwnedOps owned = v.backend.make(v.threads);
  const ConvInput input = make_input(v, 90, 1);
  const std::vector<double> expected = expected_outputs(input);
  std::vector<float> first;
  struct Span {
    bool chunk;
    int count;
  };
  const std::vector<std::vector<Span>> splits = {{{false, 1}},
                                                 {{true, 90}},
                                                 {{false, 8}, {false, 3}},
                                                 {{true, 2}, {false, 1}, {true, 31}},
                                                 {{true, 1}},
                                                 {{true, 37}, {false, 8}}};
  for (const auto& split : splits) {
    ConvMemory m(v.type, v.channels, 2, 3, 8);
    m.admit(1, 2);
    std::vector<float> out;
    std::size_t turn = 0;
    for (int done = 0; done < input.count; ++turn) {
      const Span& span = split[turn % split.size()];
      const int count = std::min(span.count, input.count - done);
      const auto part = step(owned, m, span.chunk, 1, input, done, count, count, turn % 2 == 0);
      out.insert(out.end(), part.begin(), part.end());
      done += count;
      // The tail beside the checkpoint holds the inputs before it.
      const int c = m.checkpoint[1].tokens;
      for (int i = 0; i < 3 && c > 0; ++i) {
        const std::size_t at = (2 * 3 + static_cast<std::size_t>(i)) * m.channels;
        ASSERT_EQ(m.value(m.tail, at), input.x[(c - 3 + i) * m.channels]) << "depth " << c;
        ASSERT_EQ(m.value(m.tail, at + m.channels - 1), input.x[(c - 2 + i) * m.channels - 1]);
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      // Four products and an exponential in fp32; the sum may cancel, hence the absolute part.
      ASSERT_NEAR(out[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << i;
    }
    if (first.empty()) first = out;
    ASSERT_EQ(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)), 0);
  }
}

TEST_P(Convolution, RejectedInputsLeaveNoTrace) {
  const ConvVariant& v = GetParam();
  const OwnedOps owned = v.backend.make(v.threads);
  const ConvInput input = make_input(v, 90, 2);
  ConvMemory solo(v.type, v.channels, 1, 1, 8);
  solo.admit(0, 0);
  ConvMemory m(v.type, v.channels, 1, 1, 8);
  m.admit(0, 0);
  const auto width = static_cast<std::size_t>(v.channels);
  for (int done = 0, turn = 0; done + 8 <= input.count; ++turn) {
    const int accept = 1 + turn * 3 % 8;
    ConvInput window = input;
    std::fill(window.x.begin() + (done + accept) * width, window.x.end(), std::nanf(""));
    const auto a = step(owned, solo, false, 0, input, done, accept, accept, false);
    const auto b = step(owned, m, false, 0, window, done, 8, accept, false);
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << "at " << done;
    done += accept;
  }
  EXPECT_EQ(m.tail, solo.tail);
}

TEST_P(Convolution, OutputsRoundToBf16WhereAsked) {
  const ConvVariant& v = GetParam();
  const OwnedOps owned = v.backend.make(v.threads);
  const ConvInput input = make_input(v, 10, 3);
  ConvMemory a(v.type, v.channels, 1, 1, 1), b(v.type, v.channels, 1, 1, 1);
  a.admit(0, 0);
  b.admit(0, 0);
  const auto exact = step(owned, a, true, 0, input, 0, 10, 10, false);
  const auto rounded = step(owned, b, true, 0, input, 0, 10, 10, false, DType::bf16);
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(rounded[i], round_to_bf16(exact[i]));
}

TEST_P(Convolution, NullRowsTouchNothingAndWriteZeros) {
  const ConvVariant& v = GetParam();
  const OwnedOps owned = v.backend.make(v.threads);
  const ConvInput input = make_input(v, 20, 4);
  for (bool chunk : {false, true}) {
    ConvMemory m(v.type, v.channels, 2, 2, 8);
    const auto ring = m.ring;
    const auto out = step(owned, m, chunk, 0, input, 0, 8, 8, false);
    EXPECT_EQ(out, std::vector<float>(out.size(), 0.0f));
    EXPECT_EQ(m.ring, ring);
    EXPECT_EQ(m.tail, std::vector<unsigned char>(m.tail.size(), 0xff));
  }
}

TEST_P(Convolution, RowsOfAStepAreThoseOfStepsOfTheirOwn) {
  const ConvVariant& v = GetParam();
  const OwnedOps owned = v.backend.make(v.threads);
  const ConvInput a = make_input(v, 130, 5);
  ConvInput b = make_input(v, 130, 6);
  b.weight = a.weight;  // of one layer
  ConvMemory together(v.type, v.channels, 4, 4, 8), alone(v.type, v.channels, 4, 4, 8);
  for (ConvMemory* m : {&together, &alone}) m->admit(3, 0), m->admit(0, 2);
  struct Turn {
    bool chunk;
    int of_a, of_b;
  };
  int done_a = 0, done_b = 0;
  for (const Turn& turn : {Turn{true, 37, 70}, Turn{false, 8, 1}, Turn{true, 33, 5}}) {
    const auto out = step(owned, together, turn.chunk,
                          {{3, &a, done_a, turn.of_a, turn.of_a},
                           {1, &b, 0, 7, 7},  // a null row
                           {0, &b, done_b, turn.of_b, turn.of_b}},
                          false);
    auto expected = step(owned, alone, turn.chunk, 3, a, done_a, turn.of_a, turn.of_a, false);
    expected.resize(expected.size() + 7 * static_cast<std::size_t>(v.channels));
    const auto of_b = step(owned, alone, turn.chunk, 0, b, done_b, turn.of_b, turn.of_b, false);
    expected.insert(expected.end(), of_b.begin(), of_b.end());
    EXPECT_EQ(out, expected);
    EXPECT_EQ(together.ring, alone.ring);
    EXPECT_EQ(together.tail, alone.tail);
    done_a += turn.of_a, done_b += turn.of_b;
  }
}

// More rows than a GPU's grid has blocks, so that every block has several one after the other, and
// folds among them.
TEST_P(Convolution, ManyRowsOfAStepAreThoseOfSmallSteps) {
  const ConvVariant& v = GetParam();
  const OwnedOps owned = v.backend.make(v.threads);
  const int kRows = v.name == "cuda_bf16" ? 2000 : 40, kTogether = v.name == "cuda_bf16" ? 300 : 7;
  const ConvInput input = make_input(v, 80, 7);
  for (const int window : {1, 8}) {
    ConvMemory together(v.type, v.channels, kRows, kRows, window);
    ConvMemory alone(v.type, v.channels, kRows, kRows, window);
    for (int row = 0; row < kRows; ++row) {
      for (ConvMemory* m : {&together, &alone}) m->admit(row, kRows - 1 - row);
    }
    std::vector<int> done(kRows, 0);
    for (const bool chunk : {true, false, false}) {
      std::vector<ConvPart> parts;
      for (int row = 0; row < kRows; ++row) {
        const int count = chunk ? 12 + row % 23 : window == 1 ? 1 : 1 + row % window;
        parts.push_back({row, &input, done[row] + row % 11, count, count});
        done[row] += count;
      }
      std::vector<float> expected;
      for (int first = 0; first < kRows; first += kTogether) {
        const auto begin = parts.begin() + first;
        const auto end = parts.begin() + std::min(first + kTogether, kRows);
        const auto out = step(owned, alone, chunk, {begin, end}, false);
        expected.insert(expected.end(), out.begin(), out.end());
      }
      ASSERT_EQ(step(owned, together, chunk, parts, false), expected) << window << " " << chunk;
      ASSERT_EQ(together.ring, alone.ring);
      ASSERT_EQ(together.tail, alone.tail);
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
