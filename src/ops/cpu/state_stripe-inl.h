// Work on one stripe of a state, [K, 32] in the state's type: products with vectors and rank-n
// updates. Every function that touches a state is here, and fold, window, chunk and packed step
// all call these two.
#if defined(REPLAYSSM_CPU_STATE_STRIPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLAYSSM_CPU_STATE_STRIPE_INL_H_
#undef REPLAYSSM_CPU_STATE_STRIPE_INL_H_
#else
#define REPLAYSSM_CPU_STATE_STRIPE_INL_H_
#endif

#include "ops/cpu/fetch_ahead.h"
#include "ops/cpu/state_layout.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {

inline constexpr int kStripeVectors = kStripe / kLanes;

// What comes next is fetched while a stripe is worked on, so that the memory is never idle: so many
// lines at a time, one a row while it is multiplied, and in folds one for so many products a row.
inline constexpr int kFetchRows = 8;
inline constexpr int kFetchRecords = 4;

// products[x] [32] = stripe times vectors[x] [K], for kVectors vectors, summed in ascending k.
template <int kVectors, class StateT>
HWY_INLINE void multiply_some(const StateT* HWY_RESTRICT stripe, const float* const* vectors,
                              float* HWY_RESTRICT products, FetchAhead& ahead) {
  const F f;
  V sum[kVectors][kStripeVectors];
  for (int x = 0; x < kVectors; ++x) {
    for (int i = 0; i < kStripeVectors; ++i) sum[x][i] = hn::Zero(f);
  }
  for (int first = 0; first < kKeyDim; first += kFetchRows) {
    ahead.fetch(kFetchRows);
    for (int k = first; k < first + kFetchRows; ++k) {
      V factor[kVectors];
      for (int x = 0; x < kVectors; ++x) factor[x] = hn::Set(f, vectors[x][k]);
      for (int i = 0; i < kStripeVectors; ++i) {
        const V state = in_register(load(stripe + k * kStripe + i * kLanes));
        for (int x = 0; x < kVectors; ++x) sum[x][i] = hn::MulAdd(state, factor[x], sum[x][i]);
      }
    }
  }
  for (int x = 0; x < kVectors; ++x) {
    for (int i = 0; i < kStripeVectors; ++i) {
      hn::StoreU(sum[x][i], f, products + x * kStripe + i * kLanes);
    }
  }
}

// The same for any number of vectors, so many at a time as the registers hold.
template <class StateT>
HWY_INLINE void multiply(const StateT* stripe, const float* const* vectors, int count,
                         float* products, FetchAhead& ahead) {
  constexpr int kGroup = kLanes >= 16 ? 4 : 2;
  int x = 0;
  for (; x + kGroup <= count; x += kGroup) {
    multiply_some<kGroup>(stripe, vectors + x, products + x * kStripe, ahead);
  }
  // A decoding step has two vectors, k and q: one pass for both, whatever kGroup is.
  if constexpr (kGroup > 2) {
    for (; x + 2 <= count; x += 2) {
      multiply_some<2>(stripe, vectors + x, products + x * kStripe, ahead);
    }
  }
  for (; x < count; ++x) multiply_some<1>(stripe, vectors + x, products + x * kStripe, ahead);
}

// to = from diag(decay) + sum_j corrections[j] keys[j]^T in ascending j, on 32 values from
// `value` on. `from` null: the zero state. `to` may be `from`. keys: [count][K] decayed keys.
template <class StateT, class ToT>
HWY_INLINE void update(const StateT* from, ToT* to, const float* HWY_RESTRICT decays,
                       const float* HWY_RESTRICT keys, const float* const* corrections, int value,
                       int count, FetchAhead& ahead) {
  const F f;
  constexpr int kRows = 2;
  for (int k = 0; k < kKeyDim; k += kRows) {
    ahead.fetch(count / kFetchRecords);
    V state[kRows][kStripeVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kStripeVectors; ++i) {
        state[r][i] = from == nullptr ? hn::Zero(f)
                                      : hn::Mul(load(from + (k + r) * kStripe + i * kLanes),
                                                hn::Set(f, decays[k + r]));
      }
    }
    for (int j = 0; j < count; ++j) {
      const float* correction = corrections[j] + value;
      V factor[kRows];
      for (int r = 0; r < kRows; ++r) factor[r] = hn::Set(f, keys[j * kKeyDim + k + r]);
      for (int i = 0; i < kStripeVectors; ++i) {
        const V d = in_register(hn::LoadU(f, correction + i * kLanes));
        for (int r = 0; r < kRows; ++r) state[r][i] = hn::MulAdd(d, factor[r], state[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kStripeVectors; ++i) {
        store(state[r][i], to + (k + r) * kStripe + i * kLanes);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#endif
