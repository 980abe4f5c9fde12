// gates: log gate and beta against float64, over the whole range of the projections.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/backends.h"

namespace replayssm::tests {
namespace {

class Gates : public testing::TestWithParam<Backend> {};

INSTANTIATE_TEST_SUITE_P(Backends, Gates, testing::ValuesIn(all_backends()),
                         [](const auto& test) { return test.param.name; });

struct GateCase {
  HeadShape shape;
  float lower_bound = 0;
};

TEST_P(Gates, MatchFloat64AtModerateAndExtremeProjections) {
  const OwnedOps owned = GetParam().make(2);
  REPLAYSSM_NEEDS_BACKEND(owned);
  const std::vector<float> extremes = {-30, -20.5f, -20, -1e-3f, 0, 1e-3f, 19.99f, 20, 20.01f, 30};
  for (const GateCase& c : {GateCase{{GateKind::gdn, 2, 6}}, GateCase{{GateKind::gdn, 1, 150}},
                            GateCase{{GateKind::kda, 2, 2}}, GateCase{{GateKind::kda, 2, 2}, -5}}) {
    const int tokens = 21;
    const std::size_t width = c.shape.value_heads * static_cast<std::size_t>(c.shape.gate_width());
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    std::vector<float> a, b, a_log, dt_bias;
    for (std::size_t i = 0; i < tokens * width; ++i) {
      a.push_back(i % 3 == 0 ? extremes[i / 3 % extremes.size()] : 3 * normal(random));
    }
    for (int i = 0; i < tokens * c.shape.value_heads; ++i) {
      b.push_back(i % 2 == 0 ? extremes[i / 2 % extremes.size()] : 3 * normal(random));
    }
    for (int i = 0; i < c.shape.value_heads; ++i) a_log.push_back(2 * normal(random));
    for (std::size_t i = 0; i < width; ++i) dt_bias.push_back(normal(random));
    std::vector<float> gate(a.size(), 1.0f), beta(b.size(), -1.0f);
    const auto lend = [&](std::vector<float>& x) { return Lent<float>(owned.memory.get(), x); };
    Lent<float> lent_a = lend(a), lent_b = lend(b), lent_a_log = lend(a_log),
                lent_dt_bias = lend(dt_bias), lent_gate = lend(gate), lent_beta = lend(beta);
    const Status status =
        owned.ops->gates({c.shape, tokens, lent_a.put(), lent_b.put(), lent_a_log.put(),
                          lent_dt_bias.put(), c.lower_bound, lent_gate.put(), lent_beta.put()});
    lent_gate.get(), lent_beta.get();
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const std::size_t at = i % width;
      const double x = static_cast<double>(a[i]) + dt_bias[at];
      const double rate = std::exp(static_cast<double>(a_log[at / c.shape.gate_width()]));
      const double expected = c.lower_bound < 0 ? c.lower_bound / (1 + std::exp(-rate * x))
                                                : -rate * (x > 20 ? x : std::log1p(std::exp(x)));
      // A few fp32 operations, and the rounding of x (2^-24 relative) in an exponent.
      const double slope = c.lower_bound < 0 ? rate : 1;
      const double tolerance = (6e-7 + 1.2e-7 * std::abs(x) * slope) * std::abs(expected) + 1e-37;
      ASSERT_NEAR(gate[i], expected, tolerance) << "x " << x << " rate " << rate;
      ASSERT_LE(gate[i], 0);
    }
    for (std::size_t i = 0; i < beta.size(); ++i) {
      const double expected = 1 / (1 + std::exp(-static_cast<double>(b[i])));
      ASSERT_NEAR(beta[i], expected, 1e-6 * expected) << b[i];
    }
  }
}

TEST_P(Gates, RefuseALowerBoundThatHasNoMeaning) {
  const OwnedOps owned = GetParam().make(1);
  REPLAYSSM_NEEDS_BACKEND(owned);
  float x = 0;
  const HeadShape gdn{GateKind::gdn, 1, 1};
  EXPECT_FALSE(owned.ops->gates({gdn, 1, &x, &x, &x, &x, -5, &x, &x}).ok());
  EXPECT_FALSE(owned.ops->gates({gdn, 1, &x, &x, &x, &x, 5, &x, &x}).ok());
  EXPECT_FALSE(owned.ops->gates({gdn, 1, &x, &x, nullptr, &x, 0, &x, &x}).ok());
}

}  // namespace
}  // namespace replayssm::tests
