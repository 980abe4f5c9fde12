// The device code that chooses tokens, run on the CPU by one thread, against the CPU's sampler.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/random_stream.h"
#include "cuda_emulated_ptx.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "model/cuda/token_choice.cuh"

namespace replayssm {
namespace {

struct OneThread {
  template <class Use>
  void each(int begin, int end, const Use& use) const {
    for (int i = begin; i < end; ++i) use(i);
  }
  template <class Use>
  void each_logit(const float* logits, int begin, int end, const Use& use) const {
    for (int i = begin; i < end; ++i) use(i, logits[i]);
  }
  void meet() const {}
  bool first() const { return true; }
  template <class T>
  void add(T& to, T more) const {
    to += more;
  }
  std::uint32_t next(std::uint32_t& count) const { return count++; }
};

bool allows(LogitMask mask, std::size_t token) {
  return mask.empty() || ((mask[token / 32] >> (token % 32)) & 1u) != 0;
}

// As the launches of token_choice_kernels.cu do it for one row of finite logits.
class EmulatedChoice {
 public:
  EmulatedChoice()
      : list_(std::make_unique<cuda::ChoiceList>()),
        scratch_(std::make_unique<cuda::ChoiceScratch>()) {
    cuda::make_powers(OneThread(), scratch_->powers);
  }

  TokenId draw(const std::vector<float>& logits, const TokenChoice& choice) {
    int candidates = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) candidates += allows(choice.mask, i) ? 1 : 0;
    cuda::RowChoice row;
    row.temperature = choice.temperature;
    row.top_k = choice.top_k < candidates ? choice.top_k : 0;
    row.top_p = choice.top_p;
    row.min_p = choice.min_p;
    row.uniform = choice.uniform;
    row.by_logit = row.top_k > 0 || choice.top_p < 1 ? 1 : 0;
    cuda::ChoiceRow from = row_of(logits, choice.mask, row.temperature);
    from.by_logit = row.by_logit != 0;
    from.least = from.by_logit ? 0.0 : row.min_p * from.unit();
    count(from, row.top_k == 0);
    if (from.by_logit) {
      cuda::sum_groups(OneThread(), scratch_->coarse, scratch_->coarse_sums);
      list(from, cuda::goal_of(row, cuda::sum_of(scratch_->coarse_sums)));
    }
    lists_ += list_->count > 0 ? 1 : 0;
    return cuda::draw_token(OneThread(), row, from, *list_, *scratch_);
  }

  cuda::RowLogprobs logprobs(const std::vector<float>& logits, int alternatives) {
    cuda::ChoiceRow from = row_of(logits, {}, 1);
    from.by_logit = true;
    count(from, true);
    const int wanted = std::min(alternatives, from.vocabulary);
    if (wanted > 0) list(from, {static_cast<std::uint64_t>(wanted) - 1, true});
    cuda::RowLogprobs given;
    cuda::read_logprobs(OneThread(), alternatives, from, *list_, *scratch_, given);
    return given;
  }

  // Draws whose candidates were few enough to be listed.
  int lists() const { return lists_; }

 private:
  cuda::ChoiceRow row_of(const std::vector<float>& logits, LogitMask mask, double temperature) {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (allows(mask, i)) largest = std::max(largest, logits[i]);
    }
    cuda::ChoiceRow row(logits.data(), static_cast<int>(logits.size()), largest, temperature,
                        scratch_->powers);
    row.mask = mask.empty() ? nullptr : mask.data();
    return row;
  }
  // In parts, as several blocks do.
  template <class Use>
  static void each_part(const cuda::ChoiceRow& row, const Use& use) {
    for (int at = 0; at < row.vocabulary; at += 1000) use(at, std::min(at + 1000, row.vocabulary));
  }
  void count(const cuda::ChoiceRow& row, bool sums) {
    scratch_->coarse = {};
    list_->count = 0;
    each_part(row, [&](int begin, int end) {
      cuda::count_candidates(OneThread(), row, begin, end, sums, scratch_->coarse);
    });
  }
  void list(const cuda::ChoiceRow& row, const cuda::ChoiceGoal& goal) {
    cuda::sum_groups(OneThread(), scratch_->coarse, scratch_->coarse_sums);
    const auto last = cuda::place_of(OneThread(), scratch_->coarse, scratch_->coarse_sums,
                                     goal.target, goal.by_count);
    each_part(row, [&](int begin, int end) {
      cuda::list_candidates(OneThread(), row, last, begin, end, *list_);
    });
  }

  int lists_ = 0;
  std::unique_ptr<cuda::ChoiceList> list_;
  std::unique_ptr<cuda::ChoiceScratch> scratch_;
};

// Rows of different kinds: peaked and flat, with many ties, all equal, far apart, denormal.
std::vector<float> random_row(std::mt19937& random, int kind, int size) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> row;
  for (int i = 0; i < size; ++i) {
    const float x = normal(random);
    switch (kind) {
      case 0:
        row.push_back(3 * x);
        break;
      case 1:
        row.push_back(0.01f * x - 20);
        break;
      case 2:
        row.push_back(std::round(x));
        break;
      case 3:
        row.push_back(1.5f);
        break;
      case 4:
        row.push_back(1e30f * x);
        break;
      case 5:
        row.push_back(i % 2 == 0 ? 0.0f : -0.0f);
        break;
      case 6:
        row.push_back(i == size / 2 ? 40.0f : 1e-40f * x);
        break;
      default:
        row.push_back(std::round(2 * x) + (i % 7 == 0 ? 8 : 0));
        break;
    }
  }
  return row;
}

// Both draw by the same number along the same order; their sums differ by roundings. So the tokens
// are the same but for draws that hit a boundary by less than that.
TEST(TokenChoice, IsWhatTheCpusSamplerChooses) {
  std::mt19937 random(1);
  Sampler sampler;
  EmulatedChoice emulated;
  int draws = 0;
  const double temperatures[] = {1.0, 0.7, 0.05, 2.5, 1e6, 1e-3};
  const int top_ks[] = {0, 1, 2, 20, 50, 1000, 1 << 20};
  const double top_ps[] = {1.0, 0.95, 0.5, 1e-6, 0.999999};
  const double min_ps[] = {0.0, 0.05, 0.5, 1.0};
  for (int turn = 0; turn < 400 * 8; ++turn) {
    const int size = turn % 5 == 0 ? 9000 : 1 + static_cast<int>(random() % 3000);
    const std::vector<float> row = random_row(random, turn % 8, size);
    std::vector<std::uint32_t> mask;
    if (turn % 3 == 0) {
      mask.resize((row.size() + 31) / 32);
      for (auto& word : mask) word = turn % 2 == 0 ? static_cast<std::uint32_t>(random()) : 0;
      mask[(row.size() - 1) / 32] |= std::uint32_t{1} << ((row.size() - 1) % 32);
    }
    TokenChoice choice;
    choice.temperature = temperatures[random() % 6];
    choice.top_k = top_ks[random() % 7];
    choice.top_p = top_ps[random() % 5];
    choice.min_p = min_ps[random() % 4];
    // The smallest: weights that are less than a unit are none.
    choice.uniform = turn % 50 == 0 ? 1e-12 : uniform_at(3, static_cast<std::uint64_t>(turn));
    choice.mask = mask;
    if (choice.greedy()) continue;
    const ChosenToken expected = sampler.choose(row, choice);
    ASSERT_FALSE(expected.error) << expected.error->message;
    const TokenId token = emulated.draw(row, choice);
    ASSERT_TRUE(token >= 0 && token < size);
    EXPECT_TRUE(allows(mask, static_cast<std::size_t>(token)));
    ++draws;
    if (token == expected.token) continue;
    // Where different logits have equal weights the CPU goes by ids.
    const auto weight = [&](TokenId each) {
      const double largest = *std::max_element(row.begin(), row.end());
      return std::exp((row[static_cast<std::size_t>(each)] - largest) / choice.temperature);
    };
    if (row[static_cast<std::size_t>(token)] != row[static_cast<std::size_t>(expected.token)] &&
        weight(token) == weight(expected.token)) {
      continue;
    }
    ADD_FAILURE() << "turn " << turn << ": " << token << " instead of " << expected.token << " T "
                  << choice.temperature << " k " << choice.top_k << " p " << choice.top_p << " m "
                  << choice.min_p << " kind " << turn % 8;
  }
  RecordProperty("draws", draws);
  EXPECT_GT(draws, 2000);
  EXPECT_GT(emulated.lists(), draws / 4);
  EXPECT_LT(emulated.lists(), draws);
}

// More elements than are kept apart: of one bin, of one value, of the whole row.
TEST(TokenChoice, FindsItsPlaceAmongManyAlike) {
  Sampler sampler;
  EmulatedChoice emulated;
  std::mt19937 random(2);
  for (const int kind : {0, 1, 3, 5, 2}) {
    const std::vector<float> row = random_row(random, kind, 60000);
    for (const double uniform : {0.0, 0.3, 0.77, 0.9999999}) {
      for (const int top_k : {0, 30000}) {
        for (const double top_p : {1.0, 0.6, 0.95}) {
          TokenChoice choice;
          choice.top_k = top_k;
          choice.top_p = top_p;
          choice.uniform = uniform;
          EXPECT_EQ(emulated.draw(row, choice), sampler.choose(row, choice).token)
              << kind << " " << uniform << " " << top_k << " " << top_p;
        }
      }
    }
  }
}

TEST(TokenChoice, LogprobsAreThoseOfTheCpu) {
  std::mt19937 random(3);
  EmulatedChoice emulated;
  for (int turn = 0; turn < 200; ++turn) {
    const int size = 1 + static_cast<int>(random() % 5000);
    const std::vector<float> row = random_row(random, turn % 8, size);
    const int alternatives = turn % 21;
    const TokenLogprobs expected = token_logprobs(row, 0, alternatives);
    const cuda::RowLogprobs given = emulated.logprobs(row, alternatives);
    ASSERT_EQ(given.alternatives, static_cast<int>(expected.top.size()));
    EXPECT_NEAR(row[0] - given.normaliser, expected.logprob,
                1e-9 * std::max(1.0, std::abs(expected.logprob)));
    for (int i = 0; i < given.alternatives; ++i) {
      const auto& top = expected.top[static_cast<std::size_t>(i)];
      EXPECT_EQ(given.token[i], top.token) << turn;
      EXPECT_NEAR(given.token_logit[i] - given.normaliser, top.logprob,
                  1e-9 * std::max(1.0, std::abs(top.logprob)));
    }
  }
}

// Penalty and bias of one token, as the sampler applies them.
TEST(TokenChoice, ChangesLogitsAsTheCpuDoes) {
  Sampler sampler;
  for (const float logit : {2.0f, -2.0f, 0.0f, -0.0f, 1e-3f}) {
    for (const int in_output : {0, 1, 3}) {
      TokenChoice choice;
      choice.temperature = 0;
      choice.repetition_penalty = 1.3;
      choice.presence_penalty = 0.25;
      choice.frequency_penalty = 0.125;
      const SeenToken seen{0, in_output};
      const std::pair<TokenId, float> bias{0, 0.5f};
      choice.seen = {&seen, 1};
      choice.bias = {&bias, 1};
      cuda::RowChoice row;
      row.repetition_penalty = choice.repetition_penalty;
      row.presence_penalty = choice.presence_penalty;
      row.frequency_penalty = choice.frequency_penalty;
      const float changed = cuda::changed_logit(row, {0, in_output, 0.5f, 0}, logit);
      // The sampler prefers token 0 to a second one exactly where that is smaller.
      const auto below = std::nextafter(changed, -100.0f);
      const auto above = std::nextafter(changed, 100.0f);
      EXPECT_EQ(sampler.choose(std::vector<float>{logit, below}, choice).token, 0);
      EXPECT_EQ(sampler.choose(std::vector<float>{logit, above}, choice).token, 1);
    }
  }
}

}  // namespace
}  // namespace replayssm
