// The small numbers of one head: how much each record counts for each later token, and what a fold
// multiplies. The decay between two positions is the product of exp(g) over the positions after the
// older one, newest first: a function of positions alone, and of no exponential that a record's
// append has not computed (docs/adr/0004-cpu-state-layout-and-decays.md).
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
        dot_pair(s.keys[j], s.keys[self], s.queries[i], s.key_dots[at], s.query_dots[at]);
      }
    }
  }
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
      const float key_scale = s.key_scales[self];
      const float query_scale = s.query_scales[i];
      const std::size_t row = static_cast<std::size_t>(i) * kHistory;
      float decay = *s.decays[self];  // from record j to now; in the end from the checkpoint
      for (int j = self - 1; j >= oldest; --j) {
        const float weight = decay * s.key_scales[j];
        const std::size_t at = row + (j - oldest);
        s.key_weights[at] = weight * key_scale * s.key_dots[at];
        s.query_weights[at] = weight * query_scale * s.query_dots[at];
        decay = without_denormals(decay * *s.decays[j]);
      }
      const std::size_t own = row + (self - oldest);
      s.query_weights[own] = key_scale * query_scale * s.query_dots[own];
      s.key_factors[i] = decay * key_scale;
      s.query_factors[i] = decay * query_scale;
      s.vectors[2 * i] = s.keys[self];
      s.vectors[2 * i + 1] = s.queries[i];
    }
  }
}

// The decayed, normalised keys [count][K] and the state's decay [K] of a fold.
HWY_INLINE void weigh_fold_gdn(StepScratch& s, int first, int count, float* keys, float* decays) {
  const F f;
  float decay = 1;  // from record j to the end
  for (int j = first + count - 1; j >= first; --j) {
    const V factor = hn::Set(f, decay * s.key_scales[j]);
    float* key = keys + (j - first) * kKeyDim;
    for (int k = 0; k < kKeyDim; k += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(f, s.keys[j] + k), factor), f, key + k);
    }
    decay = without_denormals(decay * *s.decays[j]);
  }
  for (int k = 0; k < kKeyDim; k += kLanes) hn::StoreU(hn::Set(f, decay), f, decays + k);
}

// ---- one gate per key channel ----

// Lines of what comes next that are fetched while a record is weighed.
inline constexpr int kFetchRecord = 8;

// key_dot = <key .* decays, self>, query_dot = <key .* decays, query>, and then
// next = decays .* step: the decays that the record before this one is weighed with.
HWY_INLINE void weigh_record_kda(const float* HWY_RESTRICT key, const float* decays,
                                 const float* HWY_RESTRICT step, const float* HWY_RESTRICT self,
                                 const float* HWY_RESTRICT query, float* next, float& key_dot,
                                 float& query_dot) {
  const F f;
  constexpr int kVectors = 16 / kLanes;
  V keys[kVectors], queries[kVectors];
  for (int i = 0; i < kVectors; ++i) keys[i] = queries[i] = hn::Zero(f);
  for (int k = 0; k < kKeyDim; k += 16) {
    for (int i = 0; i < kVectors; ++i) {
      const int at = k + i * kLanes;
      const V decay = in_register(hn::LoadU(f, decays + at));
      const V decayed = in_register(hn::Mul(hn::LoadU(f, key + at), decay));
      keys[i] = hn::MulAdd(decayed, hn::LoadU(f, self + at), keys[i]);
      queries[i] = hn::MulAdd(decayed, hn::LoadU(f, query + at), queries[i]);
      hn::StoreU(without_denormals(hn::Mul(decay, hn::LoadU(f, step + at))), f, next + at);
    }
  }
  key_dot = add_partial_sums(keys);
  query_dot = add_partial_sums(queries);
}

// to = x .* y, K values
HWY_INLINE void multiply_elements(const float* x, const float* y, float* to) {
  const F f;
  for (int k = 0; k < kKeyDim; k += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(f, x + k), hn::LoadU(f, y + k)), f, to + k);
  }
}

HWY_INLINE void weigh_tokens_kda(StepScratch& s) {
  for (int a = 0; a < s.plan.actions; ++a) {
    const SpanAction& action = s.plan.action[a];
    if (action.kind != SpanAction::Kind::evaluate) continue;
    const int oldest = s.plan.pending + action.first - action.history;
    for (int i = action.first; i < action.first + action.count; ++i) {
      const int self = s.plan.pending + i;
      const float key_scale = s.key_scales[self];
      const float query_scale = s.query_scales[i];
      const std::size_t row = static_cast<std::size_t>(i) * kHistory;
      const float* decays = s.decays[self];  // from record j to now; then from the checkpoint
      for (int j = self - 1; j >= oldest; --j) {
        float key_dot = 0, query_dot = 0;
        s.ahead.fetch(kFetchRecord);
        weigh_record_kda(s.keys[j], decays, s.decays[j], s.keys[self], s.queries[i],
                         s.running.data(), key_dot, query_dot);
        decays = s.running.data();
        const std::size_t at = row + (j - oldest);
        s.key_weights[at] = s.key_scales[j] * key_scale * key_dot;
        s.query_weights[at] = s.key_scales[j] * query_scale * query_dot;
      }
      s.query_weights[row + (self - oldest)] =
          key_scale * query_scale * dot(s.keys[self], s.queries[i]);
      s.key_factors[i] = key_scale;
      s.query_factors[i] = query_scale;
      float* vectors = s.vector_rows.data() + 2 * static_cast<std::size_t>(i) * kKeyDim;
      multiply_elements(s.keys[self], decays, vectors);
      multiply_elements(s.queries[i], decays, vectors + kKeyDim);
      s.vectors[2 * i] = vectors;
      s.vectors[2 * i + 1] = vectors + kKeyDim;
    }
  }
}

HWY_INLINE void weigh_fold_kda(StepScratch& s, int first, int count, float* keys, float* decays) {
  const F f;
  for (int k = 0; k < kKeyDim; ++k) decays[k] = 1;
  for (int j = first + count - 1; j >= first; --j) {
    float* key = keys + (j - first) * kKeyDim;
    s.ahead.fetch(kFetchRecord);
    const V scale = hn::Set(f, s.key_scales[j]);
    for (int k = 0; k < kKeyDim; k += kLanes) {
      const V decay = hn::LoadU(f, decays + k);
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(f, s.keys[j] + k), decay), scale), f, key + k);
      hn::StoreU(without_denormals(hn::Mul(decay, hn::LoadU(f, s.decays[j] + k))), f, decays + k);
    }
  }
}

// ---- either ----

// What the value heads of a key head share.
HWY_INLINE void weigh_key_head(StepScratch& s, GateKind gate) {
  if (gate == GateKind::gdn) dot_products(s);
}

HWY_INLINE void weigh_tokens(StepScratch& s, GateKind gate) {
  if (gate == GateKind::gdn)
    weigh_tokens_gdn(s);
  else
    weigh_tokens_kda(s);
}

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
