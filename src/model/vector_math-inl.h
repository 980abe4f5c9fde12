// Elementwise functions on vectors of floats, compiled once for each instruction set. Each lane's
// result depends on that lane alone, so how a row is cut into vectors changes no bit; NaN comes
// out as NaN.
#if defined(REPLAYSSM_MODEL_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLAYSSM_MODEL_VECTOR_MATH_INL_H_
#undef REPLAYSSM_MODEL_VECTOR_MATH_INL_H_
#else
#define REPLAYSSM_MODEL_VECTOR_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace replayssm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using MathTag = hn::ScalableTag<float>;
using MathVec = hn::Vec<MathTag>;

// The nearest bf16 value, ties to even, as to_bf16 of core/bfloat16.h.
HWY_INLINE MathVec nearest_bf16(MathTag d, MathVec v) {
  const hn::RebindToUnsigned<MathTag> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto kept = hn::BitCast(d, hn::And(rounded, hn::Set(du, 0xffff0000u)));
  return hn::IfThenElse(hn::IsNaN(v), v, kept);
}

// Rounds to bf16 values where kBf16, else leaves as is: the points where a bf16 model stores.
template <bool kBf16>
HWY_INLINE MathVec stored(MathTag d, MathVec v) {
  if constexpr (kBf16) return nearest_bf16(d, v);
  return v;
}

// exp(x) for x <= 88; 0 below -104.
HWY_INLINE MathVec exp_keeping_nan(MathTag d, MathVec x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

// 1 / (1 + exp(-x)); the exponential is capped where the result is below 1e-38 anyway.
HWY_INLINE MathVec sigmoid(MathTag d, MathVec x) {
  const MathVec one = hn::Set(d, 1.0f);
  const MathVec e = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Div(one, hn::Add(one, e)));
}

HWY_INLINE MathVec silu(MathTag d, MathVec x) { return hn::Mul(x, sigmoid(d, x)); }

// Calls f(offset, lanes_used, load, store) along [0, n): load(p) reads a vector at p + offset with
// zeros past n, store(v, p) writes no element past n.
template <class F>
HWY_INLINE void for_each_vector(std::size_t n, F&& f) {
  const MathTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    f([&](const float* p) { return hn::LoadU(d, p + i); },
      [&](MathVec v, float* p) { hn::StoreU(v, d, p + i); });
  }
  if (i == n) return;
  const std::size_t rest = (n - i) * sizeof(float);
  f(
      [&](const float* p) {
        HWY_ALIGN float padded[HWY_MAX_BYTES / sizeof(float)] = {};
        std::memcpy(padded, p + i, rest);
        return hn::Load(d, padded);
      },
      [&](MathVec v, float* p) {
        HWY_ALIGN float padded[HWY_MAX_BYTES / sizeof(float)];
        hn::Store(v, d, padded);
        std::memcpy(p + i, padded, rest);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#endif  // REPLAYSSM_MODEL_VECTOR_MATH_INL_H_
