// Sequences over steps: the bits do not depend on how they got where they are.
#include <gtest/gtest.h>

#include <array>

#include "cache/sequence_image.h"
#include "small_engine.h"

namespace replayssm {
namespace {

// Logits of every position from the sequence's depth to `until`, and then its memory.
struct Outcome {
  std::vector<float> logits;
  std::vector<std::byte> memory;
  bool operator==(const Outcome&) const = default;
};

// Evaluates in steps of the given sizes, over and over, alone; prompt steps are chunks.
void evaluate(Engine& engine, Sequence& sequence, int until, std::vector<int> sizes, Phase phase,
              std::vector<float>& logits) {
  for (std::size_t i = 0; sequence.evaluated() < until; ++i) {
    const int tokens = std::min(sizes[i % sizes.size()], until - sequence.evaluated());
    const StepRow row{&sequence, tokens, phase, tokens};
    ASSERT_TRUE(engine.prepare(row).ok());
    const auto out = engine.runner().evaluate({&row, 1});
    ASSERT_TRUE(out.ok()) << out.error().message;
    logits.insert(logits.end(), out->begin(), out->end());
    ASSERT_TRUE(engine.runner().commit().ok());
    const auto at = static_cast<std::size_t>(sequence.memory.row().value);
    const CursorView& device = engine.memory().views().cursors;
    ASSERT_EQ(device.committed[at], sequence.memory.cursor().committed);
    ASSERT_EQ(device.checkpoint[at], sequence.memory.cursor().checkpoint);
    ASSERT_EQ(device.base[at], sequence.memory.base());
  }
}

std::vector<std::byte> memory_of(Engine& engine, const Sequence& sequence) {
  ByteWriter out;
  EXPECT_TRUE(write_image(engine.memory(), sequence.memory, engine.ops(), out).ok());
  return std::move(out).take();
}

constexpr int kPrompt = 45;
constexpr int kEnd = 60;

Outcome straight(Engine& engine, const std::vector<TokenId>& tokens) {
  Sequence sequence = engine.admit(tokens, greedy()).value();
  Outcome outcome;
  evaluate(engine, sequence, kPrompt, {kPrompt}, Phase::prefill, outcome.logits);
  evaluate(engine, sequence, kEnd, {1}, Phase::decode, outcome.logits);
  outcome.memory = memory_of(engine, sequence);
  return outcome;
}

class EngineSequence
    : public testing::TestWithParam<std::tuple<int, Recurrence, DType, const char*>> {
 protected:
  EngineOptions options(int window_max = 1) const {
    EngineOptions options = small_options();
    options.model_path = small_checkpoint(std::get<3>(GetParam()));
    options.fold_block = std::get<0>(GetParam());
    options.recurrence = std::get<1>(GetParam());
    options.state_type = std::get<2>(GetParam());
    options.window_max = window_max;
    return options;
  }
};

TEST_P(EngineSequence, ChunksOfAnySizeGiveTheSameBits) {
  const auto engine = make_engine(options());
  const auto tokens = random_prompt(*engine, kEnd, 1);
  const Outcome expected = straight(*engine, tokens);
  for (const std::vector<int>& sizes : {std::vector{1}, {7}, {8}, {16}, {17}, {3, 16, 1, 9}}) {
    Sequence sequence = engine->admit(tokens, greedy()).value();
    Outcome outcome;
    evaluate(*engine, sequence, kPrompt, sizes, Phase::prefill, outcome.logits);
    evaluate(*engine, sequence, kEnd, {1}, Phase::decode, outcome.logits);
    outcome.memory = memory_of(*engine, sequence);
    EXPECT_EQ(outcome, expected) << sizes.front();
  }
}

TEST_P(EngineSequence, WindowsOfAnySizeGiveTheSameBits) {
  if (std::get<1>(GetParam()) == Recurrence::packed) GTEST_SKIP() << "windows need the ring";
  const auto plain = make_engine(options());
  const auto tokens = random_prompt(*plain, kEnd, 1);
  const Outcome expected = straight(*plain, tokens);
  const auto engine = make_engine(options(std::min(8, std::get<0>(GetParam()))));
  Sequence sequence = engine->admit(tokens, greedy()).value();
  Outcome outcome;
  evaluate(*engine, sequence, 5, {5}, Phase::prefill, outcome.logits);
  evaluate(*engine, sequence, kPrompt, {1, 8, 3, 7, 2}, Phase::verify, outcome.logits);
  evaluate(*engine, sequence, kEnd, {1}, Phase::decode, outcome.logits);
  outcome.memory = memory_of(*engine, sequence);
  EXPECT_EQ(outcome, expected);
}

TEST_P(EngineSequence, RejectedTokensOfAWindowLeaveNoTrace) {
  if (std::get<1>(GetParam()) == Recurrence::packed) GTEST_SKIP() << "speculation needs the ring";
  const auto plain = make_engine(options());
  const auto tokens = random_prompt(*plain, kEnd, 1);
  const auto wrong = random_prompt(*plain, kEnd, 2);
  const Outcome expected = straight(*plain, tokens);
  const auto engine = make_engine(options(8));
  Sequence sequence = engine->admit(tokens, greedy()).value();
  std::vector<float> logits;
  evaluate(*engine, sequence, 5, {5}, Phase::prefill, logits);
  for (int round = 0; sequence.evaluated() < kPrompt; ++round) {
    // A window of 8: `right` of its tokens are those of the text, the rest drafts that are wrong.
    const int t = sequence.evaluated();
    const int right = std::min(round % 8 + 1, kPrompt - t);
    std::copy(wrong.begin() + t + right, wrong.end(), sequence.tokens.begin() + t + right);
    const StepRow row{&sequence, 8, Phase::verify, 8};
    ASSERT_TRUE(engine->prepare(row).ok());
    const auto out = engine->runner().evaluate({&row, 1});
    ASSERT_TRUE(out.ok()) << out.error().message;
    const auto kept = static_cast<std::size_t>(right) * engine->runner().logits_stride();
    logits.insert(logits.end(), out->begin(), out->begin() + static_cast<std::ptrdiff_t>(kept));
    ASSERT_TRUE(engine->runner().commit({&right, 1}).ok());
    sequence.tokens = tokens;
  }
  evaluate(*engine, sequence, kEnd, {1}, Phase::decode, logits);
  EXPECT_EQ(logits, expected.logits);
  EXPECT_EQ(memory_of(*engine, sequence), expected.memory);
}

TEST_P(EngineSequence, AForkAndItsParentGoOnAsIfAlone) {
  const auto engine = make_engine(options());
  const auto tokens = random_prompt(*engine, kEnd, 1);
  const auto others = random_prompt(*engine, kEnd, 2);
  const Outcome expected = straight(*engine, tokens);
  for (const int depth : {1, 8, 15, 16, 17, 31, 33}) {
    Sequence parent = engine->admit(tokens, greedy()).value();
    std::vector<float> shared;
    evaluate(*engine, parent, depth, {depth}, Phase::prefill, shared);
    Sequence stranger = engine->fork(parent, 1).value();
    Sequence child = engine->fork(parent, 2).value();
    EXPECT_EQ(engine->memory().slots().used(), 1);
    std::copy(others.begin() + depth, others.end(), stranger.tokens.begin() + depth);
    std::vector<float> ignored;
    evaluate(*engine, stranger, kEnd, {1}, Phase::decode, ignored);
    for (Sequence* sequence : {&child, &parent}) {
      Outcome outcome{shared, {}};
      evaluate(*engine, *sequence, kPrompt, {9}, Phase::prefill, outcome.logits);
      evaluate(*engine, *sequence, kEnd, {1}, Phase::decode, outcome.logits);
      outcome.memory = memory_of(*engine, *sequence);
      EXPECT_EQ(outcome, expected) << "forked at " << depth;
    }
  }
  expect_all_free(*engine);
}

TEST_P(EngineSequence, AResumedSequenceGoesOnAsIfNeverPaused) {
  const auto engine = make_engine(options());
  const auto tokens = random_prompt(*engine, kEnd, 1);
  const Outcome expected = straight(*engine, tokens);
  for (const int depth : {1, 7, 16, 24, 40, 47, 49}) {
    Sequence sequence = engine->admit(tokens, greedy()).value();
    Outcome outcome;
    evaluate(*engine, sequence, std::min(depth, kPrompt), {64}, Phase::prefill, outcome.logits);
    evaluate(*engine, sequence, depth, {1}, Phase::decode, outcome.logits);
    const auto archive = engine->pause(sequence).value();
    sequence = Sequence{};
    expect_all_free(*engine);
    Sequence other = engine->admit(random_prompt(*engine, kEnd, 9), greedy()).value();
    std::vector<float> ignored;
    evaluate(*engine, other, kEnd, {kEnd}, Phase::prefill, ignored);
    sequence = engine->resume(archive).value();
    evaluate(*engine, sequence, std::max(depth, kPrompt), {64}, Phase::prefill, outcome.logits);
    evaluate(*engine, sequence, kEnd, {1}, Phase::decode, outcome.logits);
    outcome.memory = memory_of(*engine, sequence);
    EXPECT_EQ(outcome, expected) << "paused at " << depth;
  }
}

using Variant = std::tuple<int, Recurrence, DType, const char*>;
constexpr const char* kGdn = kModelKinds[0];
constexpr const char* kKda = kModelKinds[1];
constexpr const char* kNoAttention = "kimi_bfloat16_untied";

std::string name_of_case(const testing::TestParamInfo<Variant>& info) {
  const auto& [block, recurrence, state_type, model] = info.param;
  return (recurrence == Recurrence::packed ? std::string("ReplayOff") : fmt::format("L{}", block)) +
         "_" + std::string(name_of(state_type)) + "_" + model;
}

INSTANTIATE_TEST_SUITE_P(Blocks, EngineSequence,
                         testing::Values(Variant{8, Recurrence::replay, DType::f32, kGdn},
                                         Variant{16, Recurrence::replay, DType::f32, kGdn},
                                         Variant{32, Recurrence::replay, DType::f32, kGdn},
                                         Variant{16, Recurrence::packed, DType::f32, kGdn},
                                         Variant{8, Recurrence::replay, DType::bf16, kGdn},
                                         Variant{16, Recurrence::replay, DType::bf16, kGdn},
                                         Variant{16, Recurrence::packed, DType::bf16, kGdn},
                                         Variant{8, Recurrence::replay, DType::f32, kKda},
                                         Variant{16, Recurrence::replay, DType::f32, kKda},
                                         Variant{16, Recurrence::replay, DType::bf16, kKda},
                                         Variant{16, Recurrence::packed, DType::f32, kKda},
                                         Variant{16, Recurrence::replay, DType::f32, kNoAttention}),
                         name_of_case);

TEST(EngineArchive, KeepsTheSamplingStateAndRefusesDamageAndOtherModels) {
  EngineOptions options = small_options();
  const auto engine = make_engine(options);
  SamplingParams params;
  params.seed = 5;
  params.repetition_penalty = 1.2;
  params.presence_penalty = 0.5;
  Sequence sequence = engine->admit(random_prompt(*engine, 20, 3), params).value();
  const auto run = [&](Sequence& s, int steps) {
    for (int i = 0; i < steps; ++i) {
      const StepRow row = Engine::next_row(s, 64);
      ASSERT_TRUE(engine->prepare(row).ok());
      ASSERT_TRUE(engine->step({&row, 1}).ok());
    }
  };
  run(sequence, 10);
  const auto archive = engine->pause(sequence).value();
  run(sequence, 15);
  Sequence resumed = engine->resume(archive).value();
  EXPECT_EQ(resumed.counters.steps, 10);
  run(resumed, 15);
  EXPECT_EQ(resumed.tokens, sequence.tokens);
  EXPECT_EQ(engine->pause(resumed).value(), engine->pause(sequence).value());

  const int rows = engine->memory().rows().used();
  for (std::size_t at = 0; at < archive.size(); at += 997) {
    auto damaged = archive;
    damaged[at] ^= std::byte{1};
    EXPECT_FALSE(engine->resume(damaged).ok()) << at;
  }
  EXPECT_FALSE(engine->resume(std::span(archive).first(archive.size() - 3)).ok());
  EXPECT_FALSE(engine->resume({}).ok());
  EXPECT_EQ(engine->memory().rows().used(), rows);

  options.model_path = small_checkpoint("ratio2_float16_nested_untied");
  const auto other = make_engine(options)->resume(archive);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message, "archived sequence: made with another model");
  options = small_options();
  options.fold_block = 8;
  const auto block = make_engine(options)->resume(archive);
  ASSERT_FALSE(block.ok());
  EXPECT_NE(block.error().message.find("fold block: 16"), std::string::npos);
}

TEST(EngineExtend, TakesAPromptThatGoesOnFromWhatIsEvaluatedAndNoOther) {
  const auto engine = make_engine(small_options());
  auto tokens = random_prompt(*engine, 20, 3);
  Sequence sequence = engine->admit(tokens, greedy()).value();
  const StepRow row = Engine::next_row(sequence, 64);
  ASSERT_TRUE(engine->prepare(row).ok());
  ASSERT_TRUE(engine->step({&row, 1}).ok());
  ASSERT_EQ(sequence.tokens.size(), 21u) << "the anchor waits";

  EXPECT_FALSE(engine->extend(sequence, tokens, greedy()).ok()) << "nothing to evaluate";
  auto other = tokens;
  other[4] ^= 1;
  other.push_back(1);
  EXPECT_FALSE(engine->extend(sequence, other, greedy()).ok());
  EXPECT_EQ(sequence.tokens.size(), 21u);
  auto longer = tokens;
  longer.push_back(sequence.tokens.back() ^ 1);  // not the anchor: it was never evaluated
  longer.push_back(2);
  ASSERT_TRUE(engine->extend(sequence, longer, greedy()).ok());
  EXPECT_EQ(sequence.waiting(), 2);
  EXPECT_EQ(sequence.phase(), Phase::prefill);
}

}  // namespace
}  // namespace replayssm
