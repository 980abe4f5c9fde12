#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "core/bfloat16.h"
#include "model/attention.h"

namespace replayssm {
namespace {

// One sequence's queries, keys and values over all its positions.
struct Sequence {
  AttentionShape shape;
  int tokens = 0;
  std::vector<float> q;  // [tokens, heads, dim]
  std::vector<float> k;  // [tokens, kv_heads, dim]
  std::vector<float> v;
};

Sequence random_sequence(const AttentionShape& shape, int tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Sequence s{shape, tokens, {}, {}, {}};
  const auto fill = [&](std::vector<float>& values, int heads) {
    values.resize(static_cast<std::size_t>(tokens * heads * shape.head_dim));
    // bf16 values, so that pages of either type hold them exactly.
    for (float& x : values) x = round_to_bf16(normal(random));
  };
  fill(s.q, shape.heads);
  fill(s.k, shape.kv_heads);
  fill(s.v, shape.kv_heads);
  return s;
}

// The positions [first, second) that the token at t sees.
using Seen = std::function<std::pair<std::size_t, std::size_t>(std::size_t t)>;

std::vector<double> exact_attention(
    const Sequence& s, const Seen& seen = [](std::size_t t) { return std::pair(0, t + 1); }) {
  const auto dim = static_cast<std::size_t>(s.shape.head_dim);
  const auto heads = static_cast<std::size_t>(s.shape.heads);
  const auto kv_heads = static_cast<std::size_t>(s.shape.kv_heads);
  std::vector<double> out(s.q.size());
  for (std::size_t t = 0; t < static_cast<std::size_t>(s.tokens); ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t kv = h / static_cast<std::size_t>(s.shape.group());
      const auto [first, end] = seen(t);
      std::vector<double> weights(end - first);
      for (std::size_t j = first; j < end; ++j) {
        double dot = 0;
        for (std::size_t c = 0; c < dim; ++c) {
          dot += static_cast<double>(s.q[(t * heads + h) * dim + c]) *
                 s.k[(j * kv_heads + kv) * dim + c];
        }
        weights[j - first] = dot / std::sqrt(static_cast<double>(dim));
      }
      const double top = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& w : weights) total += (w = std::exp(w - top));
      for (std::size_t j = first; j < end; ++j) {
        for (std::size_t c = 0; c < dim; ++c) {
          out[(t * heads + h) * dim + c] +=
              weights[j - first] / total * s.v[(j * kv_heads + kv) * dim + c];
        }
      }
    }
  }
  return out;
}

// Pages in a shuffled order, poisoned with NaN where nothing has been written.
class PagedCache {
 public:
  PagedCache(const AttentionShape& shape, DType type, int page_tokens, int positions, unsigned seed)
      : shape_(shape) {
    const int pages = (positions + page_tokens - 1) / page_tokens + 3;
    const std::size_t bytes =
        static_cast<std::size_t>(pages * page_tokens * shape.kv_heads * shape.head_dim) *
        size_of(type);
    keys_ = AlignedBuffer<unsigned char>(bytes);
    values_ = AlignedBuffer<unsigned char>(bytes);
    keys_.fill_bytes(0xff);
    values_.fill_bytes(0xff);
    view = KvView{keys_.data(), values_.data(), type, pages, page_tokens};
    for (int i = 0; i < pages; ++i) ids.push_back(PageId{i});
    std::mt19937 random(seed);
    std::shuffle(ids.begin(), ids.end(), random);
  }

  KvView view;
  std::vector<PageId> ids;

 private:
  AttentionShape shape_;
  AlignedBuffer<unsigned char> keys_;
  AlignedBuffer<unsigned char> values_;
};

struct Setup {
  DType type = DType::f32;
  int page_tokens = 16;
  int threads = 2;
  std::vector<int> steps;  // tokens of each step, in order
};

// Evaluates the sequence step by step.
std::vector<float> attend(const Sequence& s, const Setup& setup) {
  ThreadPool pool(setup.threads);
  Attention attention(pool, s.shape, s.tokens);
  PagedCache cache(s.shape, setup.type, setup.page_tokens, s.tokens, 99);
  std::vector<float> out(s.q.size());
  const auto dim = static_cast<std::size_t>(s.shape.head_dim);
  std::size_t done = 0;
  for (const int step : setup.steps) {
    const AttentionSpan span{Depth{static_cast<int>(done)}, 0, step, cache.ids};
    const std::size_t kv_at = done * static_cast<std::size_t>(s.shape.kv_heads) * dim;
    const std::size_t q_at = done * static_cast<std::size_t>(s.shape.heads) * dim;
    append_kv(span, s.shape, s.k.data() + kv_at, s.v.data() + kv_at, cache.view);
    attention.run({&span, 1}, s.q.data() + q_at, cache.view, out.data() + q_at);
    done += static_cast<std::size_t>(step);
  }
  EXPECT_EQ(done, static_cast<std::size_t>(s.tokens));
  return out;
}

constexpr AttentionShape kShapes[] = {{6, 1, 256, true}, {4, 2, 64, true}, {3, 3, 20, true}};

TEST(Attention, AgreesWithFloat64ForEveryPageSizeAndType) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const AttentionShape& shape : kShapes) {
      const Sequence s = random_sequence(shape, 150, 1);
      const std::vector<double> exact = exact_attention(s);
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const int page_tokens : {1, 16}) {
          const std::vector<float> out = attend(s, {type, page_tokens, 2, {150}});
          // A weighted mean of values of size about 1, in fp32: scores of size up to 5 carry a few
          // roundings into the exponential.
          for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], 4e-6);
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

// A drafter's block: behind a context in pages, with keys and values of its own.
TEST(Attention, ABlockSeesItsContextAndItselfAsItsSightSays) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const AttentionShape& shape : {AttentionShape{6, 3, 20}, AttentionShape{3, 1, 64}}) {
      for (const int context : {0, 1, 63, 64, 130}) {
        constexpr int kBlock = 16;
        const Sequence s = random_sequence(shape, context + kBlock, 8);
        ThreadPool pool(2);
        Attention attention(pool, shape, context + kBlock);
        PagedCache cache(shape, DType::f32, 16, context, 99);  // NaN behind the context
        if (context > 0) {
          append_kv({Depth{0}, 0, context, cache.ids}, shape, s.k.data(), s.v.data(), cache.view);
        }
        const auto kv_at = static_cast<std::size_t>(context * shape.kv_heads * shape.head_dim);
        const auto q_at = static_cast<std::size_t>(context * shape.heads * shape.head_dim);
        for (const int window : {0, 1, 5, 16, 70}) {
          for (const bool whole : {false, true}) {
            const AttentionSpan span{Depth{context},
                                     0,
                                     kBlock,
                                     cache.ids,
                                     Sight{0, window, whole},
                                     OwnKv{s.k.data() + kv_at, s.v.data() + kv_at}};
            std::vector<float> out(s.q.size() - q_at);
            attention.run({&span, 1}, s.q.data() + q_at, cache.view, out.data());
            const auto exact = exact_attention(s, [&](std::size_t t) {
              const std::size_t first = window > 0 && t + 1 > static_cast<std::size_t>(window)
                                            ? t + 1 - static_cast<std::size_t>(window)
                                            : 0;
              const auto end = static_cast<std::size_t>(context + kBlock);
              return std::pair(first, whole && t >= end - kBlock ? end : t + 1);
            });
            for (std::size_t i = 0; i < out.size(); ++i) {
              ASSERT_NEAR(out[i], exact[q_at + i], 4e-6)
                  << context << " before, window " << window << (whole ? ", whole block" : "");
            }
          }
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Attention, AnySplitIntoStepsAndAnyThreadCountGiveTheSameBits) {
  for (const AttentionShape& shape : kShapes) {
    const Sequence s = random_sequence(shape, 133, 2);
    const std::vector<float> whole = attend(s, {DType::bf16, 16, 1, {133}});
    const std::vector<std::vector<int>> splits = {
        std::vector<int>(133, 1), {64, 64, 5}, {63, 65, 5}, {1, 2, 3, 100, 27}, {132, 1}};
    for (const auto& steps : splits) {
      for (const int threads : {1, 3}) {
        EXPECT_EQ(attend(s, {DType::bf16, 16, threads, steps}), whole);
      }
    }
    EXPECT_EQ(attend(s, {DType::bf16, 1, 2, {133}}), whole) << "page size";
    EXPECT_EQ(attend(s, {DType::f32, 7, 2, {133}}), whole) << "values that bf16 holds exactly";
  }
}

TEST(Attention, ARowDoesNotDependOnItsBatch) {
  const AttentionShape shape{4, 2, 64, true};
  const Sequence a = random_sequence(shape, 70, 3);
  const Sequence b = random_sequence(shape, 90, 4);
  const std::vector<float> alone = attend(b, {DType::f32, 16, 2, {90}});

  ThreadPool pool(2);
  Attention attention(pool, shape, 160);
  PagedCache cache(shape, DType::f32, 16, 200, 5);
  const AttentionSpan spans[] = {
      {Depth{0}, 0, 70, std::span(cache.ids).first(6)},
      {Depth{0}, 70, 90, std::span(cache.ids).subspan(6)},
  };
  std::vector<float> q = a.q, k = a.k, v = a.v;
  q.insert(q.end(), b.q.begin(), b.q.end());
  k.insert(k.end(), b.k.begin(), b.k.end());
  v.insert(v.end(), b.v.begin(), b.v.end());
  std::vector<float> out(q.size());
  for (const AttentionSpan& span : spans) append_kv(span, shape, k.data(), v.data(), cache.view);
  attention.run(spans, q.data(), cache.view, out.data());
  EXPECT_EQ(std::memcmp(out.data() + a.q.size(), alone.data(), alone.size() * sizeof(float)), 0);
}

TEST(Attention, ALaterPositionCannotReachAnEarlierOneEvenAsNan) {
  const AttentionShape shape{2, 1, 32, true};
  Sequence s = random_sequence(shape, 80, 6);
  const std::vector<float> clean = attend(s, {DType::f32, 16, 1, {80}});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int c = 0; c < 32; ++c) {
    s.k[static_cast<std::size_t>(77 * 32 + c)] = nan;
    s.v[static_cast<std::size_t>(77 * 32 + c)] = nan;
  }
  const std::vector<float> out = attend(s, {DType::f32, 16, 1, {80}});
  EXPECT_EQ(std::memcmp(out.data(), clean.data(), 77 * 2 * 32 * sizeof(float)), 0);
  for (std::size_t i = 77 * 2 * 32; i < out.size(); ++i) EXPECT_TRUE(std::isnan(out[i])) << i;
}

TEST(Attention, ScoresOfAnySizeStayFinite) {
  const AttentionShape shape{1, 1, 16, true};
  Sequence s = random_sequence(shape, 66, 7);
  for (float& x : s.q) x *= 1e4f;  // one key takes all the weight
  const std::vector<double> exact = exact_attention(s);
  const std::vector<float> out = attend(s, {DType::f32, 16, 1, {66}});
  // Scores of size 1e4 carry absolute roundings of about 1e-3 into the exponential.
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], 5e-3);
}

}  // namespace
}  // namespace replayssm
