#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/bfloat16.h"
#include "unit/model_compute_allocations.h"
#include "unit/model_compute_tiny.h"

namespace replayssm {
namespace {

using testing::HasSubstr;

ModelOptions options_for(bool deterministic, DType activations = DType::f32,
                         Recurrence recurrence = Recurrence::replay) {
  ModelOptions options;
  options.geometry = *FoldGeometry::make(8, 4);
  options.deterministic = deterministic;
  options.activations = activations;
  options.recurrence = recurrence;
  options.max_step_tokens = 160;
  return options;
}

std::vector<TokenId> some_tokens(int count, int salt = 0) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * i * 7 + i * 3 + salt) % 50);
  return tokens;
}

// Evaluates the tokens of sequence 0 in steps of the given sizes: chunks first, the sizes up to 4
// after `chunks` of them as windows.
std::vector<float> in_steps(TinyModel& model, const std::vector<TokenId>& tokens,
                            const std::vector<int>& sizes, std::size_t chunks) {
  std::vector<float> all;
  std::size_t done = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto count = static_cast<std::size_t>(sizes[i]);
    Part part{0, {}, i < chunks ? Phase::prefill : Phase::verify};
    part.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(done),
                       tokens.begin() + static_cast<std::ptrdiff_t>(done + count));
    const std::vector<float> logits = model.step({part});
    all.insert(all.end(), logits.begin(), logits.end());
    done += count;
  }
  EXPECT_EQ(done, tokens.size());
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(a[i]) || std::isinf(b[i])) continue;  // padded vocabulary
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return largest / scale;
}

TEST(Forward, DeterministicBitsDoNotDependOnSplitsOrThreads) {
  const std::vector<TokenId> tokens = some_tokens(41);
  for (const DType type : {DType::f32, DType::bf16}) {
    TinyModel whole(options_for(true, type), 1);
    const std::vector<float> expected = in_steps(whole, tokens, {41}, 1);
    const std::vector<std::pair<std::vector<int>, std::size_t>> splits = {
        {{7, 9, 25}, 3}, {{30, 1, 2, 3, 4, 1}, 1}, {std::vector<int>(41, 1), 0}};
    for (const auto& [sizes, chunks] : splits) {
      for (const int threads : {1, 3}) {
        TinyModel model(options_for(true, type), threads);
        EXPECT_EQ(in_steps(model, tokens, sizes, chunks), expected);
      }
    }
  }
}

TEST(Forward, DeterministicBitsDoNotDependOnBatchMatesOrPhases) {
  TinyModel alone(options_for(true), 2);
  std::vector<float> expected = alone.step({{0, some_tokens(20), Phase::prefill}});
  const std::vector<float> next = alone.step({{0, {3, 4, 5}, Phase::verify}});

  TinyModel model(options_for(true), 2);
  model.step(
      {{2, some_tokens(13, 5), Phase::prefill}, {1, some_tokens(150 - 13, 9), Phase::prefill}});
  const std::vector<float> first = model.step(
      {{1, {7}, Phase::decode}, {0, some_tokens(20), Phase::prefill}, {2, {8, 9}, Phase::verify}});
  const std::vector<float> second = model.step({{2, {1}, Phase::decode},
                                                {3, some_tokens(30), Phase::prefill},
                                                {0, {3, 4, 5}, Phase::verify}});
  const std::size_t rows = 53;
  EXPECT_EQ(std::memcmp(first.data() + rows, expected.data(), expected.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(second.data() + 31 * rows, next.data(), next.size() * sizeof(float)), 0);
}

TEST(Forward, WithoutDeterminismOnlyRoundingDiffers) {
  const std::vector<TokenId> tokens = some_tokens(150);
  TinyModel a(options_for(true), 2), b(options_for(false), 2);
  // oneDNN multiplies the chunk of 150 rows in the second. fp32 roundings through three layers.
  EXPECT_LT(largest_difference(in_steps(b, tokens, {150}, 1), in_steps(a, tokens, {150}, 1)), 1e-5);
}

TEST(Forward, ThreadsChangeNoBitsWithoutDeterminismEither) {
  const std::vector<TokenId> tokens = some_tokens(150);
  TinyModel a(options_for(false), 1), b(options_for(false), 3);
  EXPECT_EQ(in_steps(a, tokens, {140, 10}, 2), in_steps(b, tokens, {140, 10}, 2));
}

TEST(Forward, ReplayAndPackedStepAgree) {
  const std::vector<TokenId> tokens = some_tokens(40);
  TinyModel replay(options_for(true), 2);
  TinyModel packed(options_for(true, DType::f32, Recurrence::packed), 2);
  const std::vector<int> sizes = {20, 1, 1, 4, 3, 1, 1, 1, 4, 4};
  EXPECT_LT(
      largest_difference(in_steps(replay, tokens, sizes, 1), in_steps(packed, tokens, sizes, 1)),
      1e-5);
}

TEST(Forward, PaddedRowsOfTheVocabularyCannotBeChosen) {
  TinyModel model(options_for(false), 1);
  const std::vector<float> logits = model.step({{0, {1, 2}, Phase::prefill}});
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < 53; ++i) {
      const float x = logits[r * 53 + i];
      EXPECT_TRUE(i < 50 ? std::isfinite(x) : x == -std::numeric_limits<float>::infinity());
    }
  }
}

TEST(Forward, OnlyTheLogitsAskedForAreWritten) {
  TinyModel all(options_for(true), 1), some(options_for(true), 1);
  const std::vector<float> expected =
      all.step({{0, some_tokens(9), Phase::prefill}, {1, some_tokens(5, 1), Phase::prefill}});
  Batch batch;
  some.prepare({{0, some_tokens(9), Phase::prefill}, {1, some_tokens(5, 1), Phase::prefill}},
               batch);
  batch.rows[0].logits = 0;
  batch.rows[1].logits = 2;
  std::vector<float> logits(2 * 53);
  ASSERT_TRUE(some.forward(batch, logits).ok());
  EXPECT_EQ(std::memcmp(logits.data(), expected.data() + 12 * 53, logits.size() * sizeof(float)),
            0);
}

TEST(Forward, ANullRowTouchesNothingAndItsMatesDoNotNotice) {
  TinyModel alone(options_for(true), 2), model(options_for(true), 2);
  const std::vector<float> expected = alone.step({{0, some_tokens(6), Phase::prefill}});
  const SequenceViews& views = model.memory().views();
  Batch batch;
  model.prepare({{1, {9, 9}, Phase::decode}, {0, some_tokens(6), Phase::prefill}}, batch);
  views.cursors.base[model.sequence(1).row().value] = kNullSlot;
  batch.rows[0].null = true;
  batch.rows[0].pages = {};  // a padding row holds none
  std::vector<float> logits(8 * 53);
  const Status status = model.forward(batch, logits);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(std::memcmp(logits.data() + 2 * 53, expected.data(), expected.size() * sizeof(float)),
            0);
  // The poison of the pages that it might have written is still there.
  const KvView& kv = views.kv[0];
  const PageId page = model.sequence(1).pages()[0];
  const auto* keys = static_cast<const float*>(kv.keys);
  const std::size_t at = static_cast<std::size_t>(page.value * kv.page_tokens) * 2 * 32;
  EXPECT_TRUE(std::isnan(keys[at]));
}

TEST(Forward, RefusesByNameBeforeAnythingIsWritten) {
  TinyModel model(options_for(false), 1);
  const std::vector<Part> parts = {{0, some_tokens(4), Phase::verify}};
  Batch good;
  model.prepare(parts, good);
  std::vector<float> logits(4 * 53, 7.0f);
  const auto refusal = [&](const Batch& batch, std::size_t logit_count = 4 * 53) {
    std::vector<float> out(logit_count);
    const Status status = model.forward(batch, out);
    return status.ok() ? std::string("accepted") : status.error().message;
  };
  Batch batch = good;
  batch.tokens[2] = 50;  // the first padded row of the vocabulary
  EXPECT_THAT(refusal(batch), HasSubstr("batch.tokens: 50"));
  batch.tokens[2] = -1;
  EXPECT_THAT(refusal(batch), HasSubstr("batch.tokens: -1"));
  batch = good;
  batch.tokens.resize(161);
  EXPECT_THAT(refusal(batch), HasSubstr("at most max_step_tokens = 160"));
  batch = good;
  batch.tokens.push_back(1);
  EXPECT_THAT(refusal(batch), HasSubstr("batch.rows"));
  batch = good;
  batch.rows[0].span.first_token = 1;
  EXPECT_THAT(refusal(batch), HasSubstr("row.span.first_token: 1"));
  batch = good;
  batch.rows[0].span.row = RowIndex{77};
  EXPECT_THAT(refusal(batch), HasSubstr("row.span.row: 77"));
  batch = good;
  batch.rows[0].pages = {};
  EXPECT_THAT(refusal(batch), HasSubstr("row.pages: 0"));
  batch = good;
  const PageId unknown[] = {PageId{1000}};
  batch.rows[0].pages = unknown;
  EXPECT_THAT(refusal(batch), HasSubstr("row.pages: 1000"));
  batch = good;
  batch.rows[0].logits = 5;
  EXPECT_THAT(refusal(batch), HasSubstr("row.logits: 5"));
  batch = good;
  batch.tokens = some_tokens(5);
  batch.rows[0].span.tokens = 5;
  EXPECT_THAT(refusal(batch), HasSubstr("a window of 1 .. 4"));
  EXPECT_THAT(refusal(good, 4 * 50), HasSubstr("logits: 200"));

  // Nothing has changed: the good batch gives what a fresh model gives.
  ASSERT_TRUE(model.forward(good, logits).ok());
  TinyModel fresh(options_for(false), 1);
  EXPECT_EQ(logits, fresh.step(parts));
}

TEST(Forward, ASteadyDecodeStepAllocatesNothing) {
  for (const bool deterministic : {false, true}) {
    TinyModel model(options_for(deterministic), 2);
    model.step({{0, some_tokens(20), Phase::prefill}, {1, some_tokens(7), Phase::prefill}});
    std::vector<float> logits(3 * 53);
    long counted = 0;
    for (int i = 0; i < 24; ++i) {  // folds included
      const std::vector<Part> parts = {{0, {i % 50}, Phase::decode}, {1, {3, 4}, Phase::verify}};
      Batch batch;
      model.prepare(parts, batch);
      const long before = allocations();
      const Status status = model.forward(batch, logits);
      if (i >= 3) counted += allocations() - before;
      ASSERT_TRUE(status.ok()) << status.error().message;
      model.advance(batch, parts);
    }
    EXPECT_EQ(counted, 0);
  }
}

TEST(Forward, ActivationsOfABf16ModelAreBf16Values) {
  TinyModel model(options_for(true, DType::bf16), 2);
  std::map<std::string, std::vector<float>> seen;
  model.model().observe([&](std::string_view name, std::span<const float> values) {
    seen[std::string(name)].assign(values.begin(), values.end());
  });
  model.step({{0, some_tokens(10), Phase::prefill}});
  std::vector<std::string> names;
  for (const auto& [name, values] : seen) {
    names.push_back(name);
    EXPECT_EQ(values.size(), 10u * 72u);
    for (const float x : values) ASSERT_EQ(x, round_to_bf16(x)) << name;
  }
  for (const char* name : {"embedding", "layers.0.output", "layers.2.output", "norm"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
}

TEST(Forward, WorkspaceGrowsWithTheTokensOfAStep) {
  TinyModel model(options_for(false), 1);
  EXPECT_GT(model.model().workspace_bytes(1, 1), 0);
  EXPECT_GT(model.model().workspace_bytes(64, 1), model.model().workspace_bytes(1, 1));
}

TEST(Forward, NotANumberReachesTheLogitsOfItsRowOnly) {
  TinyModel model(options_for(true), 2), clean(options_for(true), 2);
  const std::vector<Part> start = {{0, some_tokens(5), Phase::prefill},
                                   {1, some_tokens(6, 2), Phase::prefill}};
  model.step(start);
  clean.step(start);
  const KvView& kv = model.memory().views().kv[0];
  const PageId page = model.sequence(0).pages()[0];
  auto* keys = static_cast<float*>(kv.keys);
  keys[static_cast<std::size_t>(page.value * kv.page_tokens) * 2 * 32] =
      std::numeric_limits<float>::quiet_NaN();
  const std::vector<Part> next = {{0, {1}, Phase::decode}, {1, {2}, Phase::decode}};
  const std::vector<float> broken = model.step(next);
  const std::vector<float> expected = clean.step(next);
  EXPECT_TRUE(std::isnan(broken[0]));
  EXPECT_EQ(std::memcmp(broken.data() + 53, expected.data() + 53, 53 * sizeof(float)), 0);
}

}  // namespace
}  // namespace replayssm
