// H06. mlx-swift #87, Crane #88 (owners unverified): a wrong scale or softplus threshold gives
// plausible garbage. Gates from extreme parameters, and the outputs that they lead to, match
// float64 at 1e-5.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/backends.h"
#include "ops/oracle.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(H06, OutputsUnderExtremeParametersMatchFloat64) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(1);
    for (float a_log : {-6.0f, 0.0f, 2.8f}) {
      for (float bias : {-30.0f, -19.0f, 0.0f, 19.9f, 20.1f, 30.0f}) {
        const HeadShape shape{GateKind::gdn, 1, 1};
        Tokens tokens = make_tokens(shape, 20, 1);
        std::vector<float> a, b;
        Tokens exact = tokens;
        for (int i = 0; i < tokens.count; ++i) {
          a.push_back(0.1f * static_cast<float>(i - 10));
          b.push_back(6.0f * static_cast<float>(i % 3 - 1));
          const double x = static_cast<double>(a[i]) + bias;
          exact.gate[i] = static_cast<float>(-std::exp(static_cast<double>(a_log)) *
                                             (x > 20 ? x : std::log1p(std::exp(x))));
          exact.beta[i] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(b[i]))));
        }
        ASSERT_TRUE(owned.ops
                        ->gates({shape, tokens.count, a.data(), b.data(), &a_log, &bias, 0,
                                 tokens.gate.data(), tokens.beta.data()})
                        .ok());
        for (int i = 0; i < tokens.count; ++i) {
          ASSERT_NEAR(tokens.gate[i], exact.gate[i], 1e-5 * std::abs(exact.gate[i])) << bias;
          ASSERT_NEAR(tokens.beta[i], exact.beta[i], 1e-6);
        }
        LayerMemory memory(*owned.ops, shape, FoldGeometry::make(8, 4).value(), {}, 1, 1);
        const Trace trace = run_alone(memory, tokens, {{Route::window, 4}});
        EXPECT_LT(relative_error(trace.outputs, oracle(exact)), 1e-5)
            << backend.name << " a_log " << a_log << " dt_bias " << bias;
      }
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
