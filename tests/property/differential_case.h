// One random case for every implementation of the operations: the same steps over the same tokens
// on the float64 reference and on each instruction set. Driven by bytes, so that a fuzzer or a seed
// can choose.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "ops/cpu_isa.h"
#include "ops/oracle.h"
#include "ops/variants.h"

namespace replayssm::tests {

// Decisions read from bytes, and from numbers that follow from all of them once they run out: every
// input, however short, is a whole case.
class Decisions {
 public:
  explicit Decisions(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
    std::seed_seq all(bytes.begin(), bytes.end());
    further_.seed(all);
  }
  // A number of [0, n).
  int below(int n) {
    return static_cast<int>((at_ < bytes_.size() ? bytes_[at_++] : further_() % 256) %
                            static_cast<unsigned>(n));
  }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int>(choices.size()))];
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::mt19937 further_;
};

struct DifferentialCase {
  HeadShape shape;
  FoldGeometry geometry;
  StorageTypes types;
  int threads = 1;
  struct Step {
    Route route;
    std::vector<Part> parts;  // tokens point into `tokens`
  };
  std::vector<Tokens> tokens;  // one stream per row
  std::vector<Step> steps;
};

// What a case has at most.
struct CaseLimits {
  int value_heads = 5;  // of a key head
  int rows = 3;
  int steps = 24;
  int tokens = 160;  // of a row
};

// Only the tokens that steps see are made.
inline DifferentialCase make_case(Decisions& decide, const CaseLimits& limits) {
  DifferentialCase c;
  c.shape.gate = decide.one_of({GateKind::gdn, GateKind::kda});
  c.shape.key_heads = 1 + decide.below(2);
  c.shape.value_heads =
      c.shape.key_heads * std::min(decide.one_of({1, 2, 3, 1, 5}), limits.value_heads);
  const int block = decide.one_of({8, 16, 32});
  const int window = 1 + decide.below(std::min(block, FoldGeometry::kLargestWindow));
  c.geometry =
      FoldGeometry::make(block, window, decide.one_of({RingAccess::staged, RingAccess::shared}))
          .value();
  const DType key = decide.one_of({DType::f32, DType::bf16});
  c.types = decide.one_of<StorageTypes>({{DType::f32, key, DType::f32},
                                         {DType::f32, key, DType::bf16},
                                         {DType::bf16, key, DType::bf16}});
  c.threads = 1 + decide.below(3);
  const int rows = 1 + decide.below(limits.rows);
  c.tokens.resize(static_cast<std::size_t>(rows));
  std::vector<int> done(rows, 0);
  std::vector<int> seen(rows, 1);
  const int steps = 1 + decide.below(limits.steps);
  for (int i = 0; i < steps; ++i) {
    DifferentialCase::Step step{decide.one_of({Route::window, Route::window, Route::chunk}), {}};
    for (int row = 0; row < rows; ++row) {
      const int most = step.route == Route::chunk ? 40 : window;
      const int count = std::min(decide.below(most + 1), limits.tokens - done[row]);
      if (count == 0) continue;
      const int accepted = step.route == Route::chunk ? count : decide.below(count + 1);
      step.parts.push_back({row, &c.tokens[row], done[row], count, accepted});
      seen[row] = std::max(seen[row], done[row] + count);
      done[row] += accepted;
    }
    if (!step.parts.empty()) c.steps.push_back(std::move(step));
  }
  for (int row = 0; row < rows; ++row) {
    const float decay = decide.one_of({0.0f, 0.002f, 0.03f, 0.5f, 40.0f});
    const auto seed = static_cast<std::uint32_t>(decide.below(256) * 256 + decide.below(256));
    c.tokens[row] =
        make_tokens(c.shape, seen[row], seed, {.mean_decay = decay, .bf16_values = true});
  }
  return c;
}

// The outputs of the accepted tokens of every step and row, one after the other.
inline std::vector<float> run_case(const DifferentialCase& c, const OwnedOps& owned) {
  const int rows = static_cast<int>(c.tokens.size());
  LayerMemory memory(*owned.ops, c.shape, c.geometry, c.types, rows, rows);
  for (int row = 0; row < rows; ++row) memory.admit(row, row);
  std::vector<float> outputs;
  const std::size_t width = c.tokens[0].out_stride();
  for (const auto& step : c.steps) {
    const auto out = run_step(memory, step.route, step.parts);
    for (std::size_t p = 0; p < out.size(); ++p) {
      outputs.insert(outputs.end(), out[p].begin(),
                     out[p].begin() + step.parts[p].accepted * width);
    }
  }
  return outputs;
}

// Empty if all implementations agree, else what differs. Leaves the best instruction set chosen.
inline std::string differences(std::span<const std::uint8_t> bytes, const CaseLimits& limits = {}) {
  Decisions decide(bytes);
  const DifferentialCase c = make_case(decide, limits);
  if (c.steps.empty()) return {};
  const std::vector<float> expected = run_case(c, reference_backend().make(1));
  if (expected.empty()) return {};  // no token was accepted
  // fp32: DESIGN of the operations, 1e-6. bf16 parts: a few times 2^-9 (see the error budget).
  const bool rounded = c.types.correction == DType::bf16;
  const double tolerance = rounded ? 3e-2 : 1e-6;
  std::string found;
  std::vector<float> fused;
  for (const std::string& isa : cpu_isas()) {
    if (!force_cpu_isa(isa).ok()) return "cannot force " + isa;
    const std::vector<float> outputs = run_case(c, cpu_backend().make(c.threads));
    const double error = relative_error(outputs, expected);
    if (!(error <= tolerance)) found += fmt::format("{}: error {:.3g}; ", isa, error);
    if (isa == "scalar" || isa == "sse4") continue;
    if (fused.empty()) fused = outputs;
    if (!same_bits(fused, outputs)) found += isa + ": other bits than the first fused one; ";
  }
  if (!force_cpu_isa("auto").ok()) return "cannot go back to the best instruction set";
  return found;
}

}  // namespace replayssm::tests
