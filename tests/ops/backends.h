// The backends that operation tests run on. A new backend is one more entry.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "ops/linear_ops.h"

namespace replayssm::tests {

// A backend and the threads it uses.
struct OwnedOps {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<LinearOps> ops;
};

struct Backend {
  std::string name;
  std::function<OwnedOps(int threads)> make;
  // Output error against float64 that is allowed, relative (L2): fp32 states, packed step.
  double tolerance = 1e-6;
};

inline std::ostream& operator<<(std::ostream& to, const Backend& b) { return to << b.name; }

inline Backend reference_backend() {
  return {"reference",
          [](int) {
            return OwnedOps{nullptr, make_reference_ops()};
          },
          // Inputs are exact and the output is rounded to fp32 once: 2^-24.
          6e-8};
}

inline Backend cpu_backend() {
  return {"cpu", [](int threads) {
            OwnedOps owned;
            owned.pool = std::make_unique<ThreadPool>(threads);
            owned.ops = make_cpu_ops(*owned.pool);
            return owned;
          }};
}

inline std::vector<Backend> backends() { return {reference_backend(), cpu_backend()}; }

}  // namespace replayssm::tests
