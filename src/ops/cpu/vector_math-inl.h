// Elementwise functions and the inner product of one instruction set. Included once per target.
#if defined(REPLAYSSM_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLAYSSM_CPU_VECTOR_MATH_INL_H_
#undef REPLAYSSM_CPU_VECTOR_MATH_INL_H_
#else
#define REPLAYSSM_CPU_VECTOR_MATH_INL_H_
#endif

#include <cmath>

#include "core/bfloat16.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "ops/shape.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes. Sums across lanes are always over 16 of them, in one fixed tree.
using F = hn::CappedTag<float, 16>;
using V = hn::Vec<F>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));

// Decay: exp of a log gate, <= 0. exp(0) is exactly 1.
HWY_INLINE V decay(V gate) { return hn::Exp(F(), gate); }

// A product of decays, or 0 where it is so small that it and what it multiplies would be
// denormal, which some processors compute a hundred times slower. 2^-100 of anything stored is
// nothing beside what is added to it.
HWY_INLINE V without_denormals(V decay) {
  return hn::IfThenElseZero(hn::Ge(decay, hn::Set(F(), 0x1p-100f)), decay);
}
HWY_INLINE float without_denormals(float decay) { return decay >= 0x1p-100f ? decay : 0; }

// 1 / (1 + exp(-x)), through the exponential of -|x| only.
HWY_INLINE V sigmoid(V x) {
  const F f;
  const V one = hn::Set(f, 1.0f);
  const V e = hn::Exp(f, hn::Neg(hn::Abs(x)));
  const V denominator = hn::Add(one, e);
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(f)), e, one), denominator);
}

HWY_INLINE V silu(V x) { return hn::Mul(x, sigmoid(x)); }

// log(1 + exp(x)); x for x > 20. The tests hold it to 1e-6 over the whole range, so the logarithm
// of 1 + e is taken as 2 atanh(e / (2 + e)), which loses nothing for small e; for x > 0 it is
// x + softplus(-x).
HWY_INLINE V softplus(V x) {
  const F f;
  const V e = hn::Exp(f, hn::Neg(hn::Abs(x)));           // in (0, 1]
  const V s = hn::Div(e, hn::Add(hn::Set(f, 2.0f), e));  // in (0, 1/3]
  const V s2 = hn::Mul(s, s);
  // 2 s (1 + s^2/3 + s^4/5 + ...): with s <= 1/3 the term after s^12/13 is below 2e-8.
  V series = hn::Set(f, 1.0f / 15.0f);
  series = hn::MulAdd(series, s2, hn::Set(f, 1.0f / 13.0f));
  series = hn::MulAdd(series, s2, hn::Set(f, 1.0f / 11.0f));
  series = hn::MulAdd(series, s2, hn::Set(f, 1.0f / 9.0f));
  series = hn::MulAdd(series, s2, hn::Set(f, 1.0f / 7.0f));
  series = hn::MulAdd(series, s2, hn::Set(f, 1.0f / 5.0f));
  series = hn::MulAdd(series, s2, hn::Set(f, 1.0f / 3.0f));
  series = hn::MulAdd(series, s2, hn::Set(f, 1.0f));
  const V log = hn::Mul(hn::Add(s, s), series);
  const V positive = hn::Add(hn::Max(x, hn::Zero(f)), log);
  return hn::IfThenElse(hn::Gt(x, hn::Set(f, 20.0f)), x, positive);
}

// Keeps a loaded vector that several products use in a register. GCC would load it again for each
// of them, and loads, not products, would set the pace (15 % of a window step).
HWY_INLINE V in_register(V x) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
  asm("" : "+v"(x.raw));
#elif HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm("" : "+x"(x.raw));
#endif
  return x;
}

// The sum of a vector's lanes, added in halves.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE float add_lanes(F, V x) { return hn::GetLane(x); }
#else
template <class D>
HWY_INLINE float add_lanes(D, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return add_lanes(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  } else {
    static_assert(hn::MaxLanes(D()) == 4);
    x = hn::Add(x, hn::Shuffle1032(x));
    return hn::GetLane(hn::Add(x, hn::Shuffle2301(x)));
  }
}
#endif

// Sixteen partial sums, added in halves whatever the vectors' width: l + (l + 8), then + 4, + 2,
// + 1.
template <int kVectors>
HWY_INLINE float add_partial_sums(V (&partial)[kVectors]) {
  static_assert(kVectors * kLanes == 16);
  for (int n = kVectors / 2; n >= 1; n /= 2) {
    for (int i = 0; i < n; ++i) partial[i] = hn::Add(partial[i], partial[i + n]);
  }
  return add_lanes(F(), partial[0]);
}

// The inner product of K values.
HWY_INLINE float dot(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y) {
  const F f;
  constexpr int kVectors = 16 / kLanes;
  V partial[kVectors];
  for (int i = 0; i < kVectors; ++i) partial[i] = hn::Zero(f);
  for (int k = 0; k < kKeyDim; k += 16) {
    for (int i = 0; i < kVectors; ++i) {
      partial[i] = hn::MulAdd(hn::LoadU(f, x + k + i * kLanes), hn::LoadU(f, y + k + i * kLanes),
                              partial[i]);
    }
  }
  return add_partial_sums(partial);
}

// x_y = <x, y> and x_z = <x, z>: the same sums as dot(), reading x once.
HWY_INLINE void dot_pair(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y,
                         const float* HWY_RESTRICT z, float& x_y, float& x_z) {
  const F f;
  constexpr int kVectors = 16 / kLanes;
  V with_y[kVectors], with_z[kVectors];
  for (int i = 0; i < kVectors; ++i) with_y[i] = with_z[i] = hn::Zero(f);
  for (int k = 0; k < kKeyDim; k += 16) {
    for (int i = 0; i < kVectors; ++i) {
      const int at = k + i * kLanes;
      const V value = in_register(hn::LoadU(f, x + at));
      with_y[i] = hn::MulAdd(value, hn::LoadU(f, y + at), with_y[i]);
      with_z[i] = hn::MulAdd(value, hn::LoadU(f, z + at), with_z[i]);
    }
  }
  x_y = add_partial_sums(with_y);
  x_z = add_partial_sums(with_z);
}

// Factor that L2-normalises K values: 1 / sqrt(sum x^2 + 1e-6).
HWY_INLINE float inverse_norm(const float* x) { return 1.0f / std::sqrt(dot(x, x) + 1e-6f); }

// bf16 in memory, float in arithmetic; the same rounding as to_bf16.
HWY_INLINE V load(const float* p) { return hn::LoadU(F(), p); }
HWY_INLINE V load(const bf16* p) {
  const F f;
  const hn::Rebind<std::uint16_t, F> u16;
  const hn::Rebind<std::uint32_t, F> u32;
  const auto bits = hn::LoadU(u16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(f, hn::ShiftLeft<16>(hn::PromoteTo(u32, bits)));
}
HWY_INLINE void store(V x, float* p) { hn::StoreU(x, F(), p); }
HWY_INLINE void store(V x, bf16* p) {
  const hn::Rebind<std::uint16_t, F> u16;
  const hn::Rebind<std::int32_t, F> i32;
  const hn::Rebind<std::uint32_t, F> u32;
  const auto bits = hn::BitCast(u32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u32, 0x40));
  const auto nan = hn::RebindMask(u32, hn::IsNaN(x));
  const auto half = hn::BitCast(i32, hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(u16, half), u16, reinterpret_cast<std::uint16_t*>(p));
}

// `count` values, a multiple of 16, from one type to another.
template <class From, class To>
HWY_INLINE void convert(const From* from, To* to, int count) {
  for (int i = 0; i < count; i += kLanes) store(load(from + i), to + i);
}

// Values rounded to bf16 and back.
HWY_INLINE V round_to_bf16(V x) {
  alignas(64) bf16 rounded[kLanes];
  store(x, rounded);
  return load(rounded);
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#endif
