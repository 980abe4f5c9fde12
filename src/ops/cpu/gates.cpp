// gates: log gate and beta of some tokens.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gates.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {

// Values are copied through arrays of so many, a multiple of any number of lanes.
constexpr int kBatch = 128;

// gate = -exp(a_log) softplus(x), or lower_bound * sigmoid(exp(a_log) x) where lower_bound < 0.
HWY_INLINE V log_gate(V x, V a_log, float lower_bound) {
  const F f;
  const V rate = hn::Exp(f, a_log);
  if (lower_bound < 0) return hn::Mul(hn::Set(f, lower_bound), sigmoid(hn::Mul(rate, x)));
  return hn::Neg(hn::Mul(rate, softplus(x)));
}

void gate_tokens(const GateArgs& args, int first, int count) {
  const F f;
  const int width = args.shape.gate_width();
  const int heads = args.shape.value_heads;
  const int all = heads * width;
  alignas(64) float x[kBatch] = {};
  alignas(64) float a_log[kBatch] = {};
  for (int token = first; token < first + count; ++token) {
    const float* a = args.a + static_cast<std::size_t>(token) * all;
    float* gate = args.gate + static_cast<std::size_t>(token) * all;
    for (int from = 0; from < all; from += kBatch) {
      const int some = std::min(kBatch, all - from);
      for (int i = 0; i < some; ++i) {
        x[i] = a[from + i] + args.dt_bias[from + i];
        a_log[i] = args.a_log[(from + i) / width];
      }
      for (int i = 0; i < some; i += kLanes) {
        hn::Store(log_gate(hn::Load(f, x + i), hn::Load(f, a_log + i), args.lower_bound), f, x + i);
      }
      std::copy_n(x, some, gate + from);
    }
    const float* b = args.b + static_cast<std::size_t>(token) * heads;
    float* beta = args.beta + static_cast<std::size_t>(token) * heads;
    for (int from = 0; from < heads; from += kBatch) {
      const int some = std::min(kBatch, heads - from);
      std::copy_n(b + from, some, x);
      for (int i = 0; i < some; i += kLanes) {
        hn::Store(sigmoid(hn::Load(f, x + i)), f, x + i);
      }
      std::copy_n(x, some, beta + from);
    }
  }
}

std::int64_t this_target() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm::cpu {

HWY_EXPORT(gate_tokens);
HWY_EXPORT(this_target);

void gate_tokens(const GateArgs& args, int first, int count) {
  HWY_DYNAMIC_DISPATCH(gate_tokens)(args, first, count);
}

std::int64_t chosen_target() { return HWY_DYNAMIC_DISPATCH(this_target)(); }

}  // namespace replayssm::cpu
#endif
