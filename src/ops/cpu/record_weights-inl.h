// The small numbers of one head: how much each record counts for each later token, and what a fold
// multiplies. Gates are summed newest first, so that a weight is a function of positions alone.
#if defined(REPLAYSSM_CPU_RECORD_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLAYSSM_CPU_RECORD_WEIGHTS_INL_H_
#undef REPLAYSSM_CPU_RECORD_WEIGHTS_INL_H_
#else
#define REPLAYSSM_CPU_RECORD_WEIGHTS_INL_H_
#endif

#include "ops/cpu/step_scratch.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {

// <k_j, k_i> and <k_j, q_i> of raw keys and queries: the part that value heads share. Record
// numbers as in SpanPlan; row i of the results begins with the oldest record of token i's history
// and ends with token i itself.
HWY_INLINE void dot_products(StepScratch& s) {
  for (int a = 0; a < s.plan.actions; ++a) {
    const SpanAction& action = s.plan.action[a];
    if (action.kind != SpanAction::Kind::evaluate) continue;
    const int oldest = s.plan.pending + action.first - action.history;
    for (int i = action.first; i < action.first + action.count; ++i) {
      const int self = s.plan.pending + i;
      for (int j = oldest; j <= self; ++j) {
        const std::size_t at = static_cast<std::size_t>(i) * kHistory + (j - oldest);
        s.query_dots[at] = dot(s.keys[j], s.queries[i]);
        if (j < self) s.key_dots[at] = dot(s.keys[j], s.keys[self]);
      }
    }
  }
}

// exp of each of `count` sums, in place; there is room up to a multiple of 16.
HWY_INLINE void decay_all(float* sums, int count) {
  for (int i = 0; i < count; i += kLanes)
    hn::StoreU(decay(hn::LoadU(F(), sums + i)), F(), sums + i);
}

// ---- one gate per head ----

// Weights of every token's history, and the factors of its products with the checkpoint.
HWY_INLINE void weigh_tokens_gdn(StepScratch& s) {
  for (int a = 0; a < s.plan.actions; ++a) {
    const SpanAction& action = s.plan.action[a];
    if (action.kind != SpanAction::Kind::evaluate) continue;
    const int oldest = s.plan.pending + action.first - action.history;
    for (int i = action.first; i < action.first + action.count; ++i) {
      const int self = s.plan.pending + i;
      const int history = self - oldest;
      // decays[m]: from record self - 1 - m to now; decays[history]: from the checkpoint.
      float* decays = s.decays.data();
      float sum = 0;
      for (int m = 0; m <= history; ++m) {
        sum = m == 0 ? *s.gates[self] : sum + *s.gates[self - m];
        decays[m] = sum;
      }
      decay_all(decays, history + 1);
      const float key_scale = s.key_scales[self];
      const float query_scale = s.query_scales[i];
      const std::size_t row = static_cast<std::size_t>(i) * kHistory;
      for (int m = 0; m < history; ++m) {
        const int j = self - 1 - m;
        const float weight = decays[m] * s.key_scales[j];
        const std::size_t at = row + (j - oldest);
        s.key_weights[at] = weight * key_scale * s.key_dots[at];
        s.query_weights[at] = weight * query_scale * s.query_dots[at];
      }
      s.query_weights[row + history] = key_scale * query_scale * s.query_dots[row + history];
      s.key_factors[i] = decays[history] * key_scale;
      s.query_factors[i] = decays[history] * query_scale;
      s.vectors[2 * i] = s.keys[self];
      s.vectors[2 * i + 1] = s.queries[i];
    }
  }
}

// The decayed, normalised keys [count][K] and the state's decay [K] of a fold.
HWY_INLINE void weigh_fold_gdn(StepScratch& s, int first, int count, float* keys, float* decays) {
  const F f;
  float* weights = s.decays.data();
  float sum = 0;
  for (int j = count - 1; j >= 0; --j) {
    weights[j] = sum;  // the gates of j+1 .. count-1
    sum = j == count - 1 ? *s.gates[first + j] : sum + *s.gates[first + j];
  }
  weights[count] = sum;
  decay_all(weights, count + 1);
  for (int j = 0; j < count; ++j) {
    const V factor = hn::Set(f, weights[j] * s.key_scales[first + j]);
    for (int k = 0; k < kKeyDim; k += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(f, s.keys[first + j] + k), factor), f, keys + j * kKeyDim + k);
    }
  }
  for (int k = 0; k < kKeyDim; k += kLanes) hn::StoreU(hn::Set(f, weights[count]), f, decays + k);
}

// ---- one gate per key channel ----

// to[k] = x[k] * exp(sums[k])
HWY_INLINE void decayed(const float* x, const float* sums, float* to) {
  const F f;
  for (int k = 0; k < kKeyDim; k += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(f, x + k), decay(hn::LoadU(f, sums + k))), f, to + k);
  }
}

HWY_INLINE void add_gate(float* sums, const float* gate) {
  const F f;
  for (int k = 0; k < kKeyDim; k += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(f, sums + k), hn::LoadU(f, gate + k)), f, sums + k);
  }
}

HWY_INLINE void weigh_tokens_kda(StepScratch& s) {
  float* sums = s.sums.data();
  float* decayed_key = s.decays.data();
  for (int a = 0; a < s.plan.actions; ++a) {
    const SpanAction& action = s.plan.action[a];
    if (action.kind != SpanAction::Kind::evaluate) continue;
    const int oldest = s.plan.pending + action.first - action.history;
    for (int i = action.first; i < action.first + action.count; ++i) {
      const int self = s.plan.pending + i;
      const int history = self - oldest;
      const float key_scale = s.key_scales[self];
      const float query_scale = s.query_scales[i];
      const std::size_t row = static_cast<std::size_t>(i) * kHistory;
      std::copy_n(s.gates[self], kKeyDim, sums);
      for (int m = 0; m < history; ++m) {
        const int j = self - 1 - m;
        decayed(s.keys[j], sums, decayed_key);
        const std::size_t at = row + (j - oldest);
        s.key_weights[at] = s.key_scales[j] * key_scale * dot(decayed_key, s.keys[self]);
        s.query_weights[at] = s.key_scales[j] * query_scale * dot(decayed_key, s.queries[i]);
        add_gate(sums, s.gates[j]);
      }
      s.query_weights[row + history] = key_scale * query_scale * dot(s.keys[self], s.queries[i]);
      s.key_factors[i] = key_scale;
      s.query_factors[i] = query_scale;
      float* vectors = s.vector_rows.data() + 2 * static_cast<std::size_t>(i) * kKeyDim;
      decayed(s.keys[self], sums, vectors);
      decayed(s.queries[i], sums, vectors + kKeyDim);
      s.vectors[2 * i] = vectors;
      s.vectors[2 * i + 1] = vectors + kKeyDim;
    }
  }
}

HWY_INLINE void weigh_fold_kda(StepScratch& s, int first, int count, float* keys, float* decays) {
  const F f;
  float* sums = s.sums.data();
  for (int k = 0; k < kKeyDim; ++k) sums[k] = 0;
  for (int j = count - 1; j >= 0; --j) {
    float* key = keys + j * kKeyDim;
    decayed(s.keys[first + j], sums, key);
    const V scale = hn::Set(f, s.key_scales[first + j]);
    for (int k = 0; k < kKeyDim; k += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(f, key + k), scale), f, key + k);
    }
    add_gate(sums, s.gates[first + j]);
  }
  for (int k = 0; k < kKeyDim; k += kLanes) {
    hn::StoreU(decay(hn::LoadU(f, sums + k)), f, decays + k);
  }
}

// ---- either ----

HWY_INLINE void weigh_fold(StepScratch& s, GateKind gate, int first, int count, float* keys,
                           float* decays) {
  if (gate == GateKind::gdn)
    weigh_fold_gdn(s, first, count, keys, decays);
  else
    weigh_fold_kda(s, first, count, keys, decays);
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#endif
