#include <cmath>

#include "ops/reference/ops.h"

namespace replayssm::reference {
namespace {

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

void gates(const GateArgs& args) {
  const int width = args.shape.gate_width();
  const int heads = args.shape.value_heads;
  for (int token = 0; token < args.tokens; ++token) {
    for (int head = 0; head < heads; ++head) {
      const std::size_t at = static_cast<std::size_t>(token) * heads + head;
      args.beta[at] = static_cast<float>(sigmoid(args.b[at]));
      const double rate = std::exp(static_cast<double>(args.a_log[head]));
      for (int k = 0; k < width; ++k) {
        const double x = static_cast<double>(args.a[at * width + k]) +
                         args.dt_bias[static_cast<std::size_t>(head) * width + k];
        const double gate =
            args.lower_bound < 0 ? args.lower_bound * sigmoid(rate * x) : -rate * softplus(x);
        args.gate[at * width + k] = static_cast<float>(gate);
      }
    }
  }
}

}  // namespace replayssm::reference
