// packed_step, window_step and chunk_prefill for the value heads of one key head of one row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/step.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/cpu/record_weights-inl.h"
#include "ops/cpu/ring_access-inl.h"
#include "ops/cpu/state_stripe-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {

constexpr float kQueryScale = 0.08838834764831845f;  // K^-1/2

const float* input_row(const StepArgs& args, int token) {
  return args.qkv + static_cast<std::size_t>(token) * args.shape.channels();
}

// The key of a token as the ring stores it: through `rounded` where that is bf16.
const float* stored_key(const StepTask& task, int token, float* rounded) {
  const StepArgs& args = *task.args;
  const float* key = input_row(args, token) + (args.shape.key_heads + task.key_head) * kKeyDim;
  if (task.kind == StepKind::packed || args.rings.key_type == DType::f32) return key;
  for (int k = 0; k < kKeyDim; k += kLanes) store(round_to_bf16(load(key + k)), rounded + k);
  return rounded;
}

// Keys and queries of the span's records and tokens.
void prepare_key_head(const StepTask& task) {
  const StepArgs& args = *task.args;
  StepScratch& s = *task.scratch;
  for (int j = 0; j < s.plan.pending; ++j) {
    const int r = args.geometry.ring_row(s.plan.checkpoint + j);
    const RingKey key = ring_key(args.shape, args.rings, task.row->row, task.key_head, r);
    s.keys[j] = key.as_float(s.key_rows.data() + static_cast<std::size_t>(j) * kKeyDim);
    s.key_scales[j] = *key.scale;
  }
  for (int i = 0; i < s.plan.tokens; ++i) {
    const int j = s.plan.pending + i;
    const int token = s.plan.first_token + i;
    s.keys[j] = stored_key(task, token, s.key_rows.data() + static_cast<std::size_t>(j) * kKeyDim);
    s.key_scales[j] = inverse_norm(s.keys[j]);
    s.queries[i] = input_row(args, token) + task.key_head * kKeyDim;
    s.query_scales[i] = inverse_norm(s.queries[i]) * kQueryScale;
  }
  weigh_key_head(s, args.shape.gate);
}

// exp of the log gates of the span's tokens, [tokens][gate_width].
void decays_of_tokens(const StepTask& task, int value_head) {
  const F f;
  const StepArgs& args = *task.args;
  StepScratch& s = *task.scratch;
  const int width = args.shape.gate_width();
  float* decays = s.decay_rows.data();
  for (int i = 0; i < s.plan.tokens; ++i) {
    const std::size_t head =
        static_cast<std::size_t>(s.plan.first_token + i) * args.shape.value_heads + value_head;
    std::copy_n(args.gate + head * width, width, decays + static_cast<std::size_t>(i) * width);
  }
  // There is room up to a multiple of the lanes; what lies there is of no consequence.
  for (int i = 0; i < s.plan.tokens * width; i += kLanes) {
    hn::StoreU(decay(hn::LoadU(f, decays + i)), f, decays + i);
  }
}

// Decays, stored corrections, weights of one value head.
void prepare_value_head(const StepTask& task, int value_head) {
  const StepArgs& args = *task.args;
  StepScratch& s = *task.scratch;
  for (int j = 0; j < s.plan.pending; ++j) {
    const int r = args.geometry.ring_row(s.plan.checkpoint + j);
    const RingCorrection record =
        ring_correction(args.shape, args.rings, task.row->row, value_head, r);
    s.decays[j] = record.decay;
    s.corrections[j] =
        record.as_float(s.correction_rows.data() + static_cast<std::size_t>(j) * kValueDim);
  }
  decays_of_tokens(task, value_head);
  for (int i = 0; i < s.plan.tokens; ++i) {
    const int j = s.plan.pending + i;
    s.decays[j] = s.decay_rows.data() + static_cast<std::size_t>(i) * args.shape.gate_width();
    s.corrections[j] = s.correction_rows.data() + static_cast<std::size_t>(j) * kValueDim;
  }
  weigh_tokens(s, args.shape.gate);
  for (int a = 0; a < s.plan.actions; ++a) {
    const SpanAction& fold = s.plan.action[a];
    if (fold.kind != SpanAction::Kind::fold) continue;
    weigh_fold(s, args.shape.gate, fold.first, fold.count,
               s.fold_keys.data() + static_cast<std::size_t>(fold.weights) * kKeyDim,
               s.fold_decays.data() + static_cast<std::size_t>(a) * kKeyDim);
  }
}

// The tokens of one action, for 32 values: y = S k from checkpoint and records in ascending
// order, d = beta (v - y), o = S q + (k.q) d.
template <class StateT>
void evaluate(const StepTask& task, const SpanAction& action, int value_head, int value,
              const StateT* stripe) {
  const F f;
  const StepArgs& args = *task.args;
  StepScratch& s = *task.scratch;
  if (stripe != nullptr) {
    multiply(stripe, s.vectors.data() + 2 * action.first, 2 * action.count, s.products.data(),
             s.ahead);
  }
  const bool round = task.kind != StepKind::packed && args.rings.correction_type == DType::bf16;
  const int oldest = s.plan.pending + action.first - action.history;
  for (int i = action.first; i < action.first + action.count; ++i) {
    const float* product =
        s.products.data() + 2 * static_cast<std::size_t>(i - action.first) * kStripe;
    V key_sum[kStripeVectors], query_sum[kStripeVectors];
    for (int v = 0; v < kStripeVectors; ++v) {
      if (stripe == nullptr) {
        key_sum[v] = query_sum[v] = hn::Zero(f);
        continue;
      }
      key_sum[v] = hn::Mul(hn::Load(f, product + v * kLanes), hn::Set(f, s.key_factors[i]));
      query_sum[v] =
          hn::Mul(hn::Load(f, product + kStripe + v * kLanes), hn::Set(f, s.query_factors[i]));
    }
    const int self = s.plan.pending + i;
    const float* key_weight = s.key_weights.data() + static_cast<std::size_t>(i) * kHistory;
    const float* query_weight = s.query_weights.data() + static_cast<std::size_t>(i) * kHistory;
    for (int j = oldest; j < self; ++j) {
      const float* correction = s.corrections[j] + value;
      const V key = hn::Set(f, key_weight[j - oldest]);
      const V query = hn::Set(f, query_weight[j - oldest]);
      for (int v = 0; v < kStripeVectors; ++v) {
        const V d = in_register(hn::LoadU(f, correction + v * kLanes));
        key_sum[v] = hn::MulAdd(d, key, key_sum[v]);
        query_sum[v] = hn::MulAdd(d, query, query_sum[v]);
      }
    }
    const int token = s.plan.first_token + i;
    const std::size_t head = static_cast<std::size_t>(token) * args.shape.value_heads + value_head;
    const float* values = input_row(args, token) + 2 * args.shape.key_heads * kKeyDim +
                          value_head * kValueDim + value;
    const V beta = hn::Set(f, args.beta[head]);
    const V own = hn::Set(f, query_weight[self - oldest]);
    float* stored = s.correction_rows.data() + static_cast<std::size_t>(self) * kValueDim + value;
    float* out = args.out + head * kValueDim + value;
    for (int v = 0; v < kStripeVectors; ++v) {
      const V d = hn::Mul(beta, hn::Sub(hn::LoadU(f, values + v * kLanes), key_sum[v]));
      hn::StoreU(hn::MulAdd(own, d, query_sum[v]), f, out + v * kLanes);
      hn::Store(round ? round_to_bf16(d) : d, f, stored + v * kLanes);
    }
  }
}

template <class StateT>
void work_span(const StepTask& task, int value_head) {
  const StepArgs& args = *task.args;
  StepScratch& s = *task.scratch;
  const auto slot_state = [&](SlotId slot) {
    return static_cast<StateT*>(args.states.data) + slot.value * args.states.slot_stride +
           value_head * kHeadElements;
  };
  const std::int32_t at = task.row->row.value;
  const SlotId base = args.cursors.base[at];
  const SlotId home = args.cursors.home[at];
  StateT* scratch = reinterpret_cast<StateT*>(s.state.data());
  for (int stripe = 0; stripe < kStripes; ++stripe) {
    const auto at_place = [&](Place place) -> StateT* {
      switch (place) {
        case Place::zero:
          return nullptr;
        case Place::base:
          return slot_state(base) + stripe * kStripeElements;
        case Place::home:
          return slot_state(home) + stripe * kStripeElements;
        case Place::scratch:
          return scratch;
      }
      return nullptr;
    };
    for (int a = 0; a < s.plan.actions; ++a) {
      const SpanAction& action = s.plan.action[a];
      const StateT* source = at_place(action.source);
      if (action.kind == SpanAction::Kind::evaluate) {
        evaluate(task, action, value_head, stripe * kStripe, source);
        continue;
      }
      update(source, at_place(action.destination),
             s.fold_decays.data() + static_cast<std::size_t>(a) * kKeyDim,
             s.fold_keys.data() + static_cast<std::size_t>(action.weights) * kKeyDim,
             s.corrections.data() + action.first, stripe * kStripe, action.count, s.ahead);
    }
  }
}

// Writes corrections and decays of the span's kept tokens to the ring.
void append_corrections(const StepTask& task, int value_head) {
  const StepArgs& args = *task.args;
  const StepScratch& s = *task.scratch;
  for (int i = s.plan.keep_from; i < s.plan.tokens; ++i) {
    const int j = s.plan.pending + i;
    const int r = args.geometry.ring_row(s.plan.checkpoint + j);
    ring_correction(args.shape, args.rings, task.row->row, value_head, r)
        .write(s.corrections[j], s.decays[j], args.shape.gate_width());
  }
}

Cursor cursor_of(const StepTask& task) {
  const std::int32_t at = task.row->row.value;
  return {task.args->cursors.committed[at], task.args->cursors.checkpoint[at]};
}

// The tokens of a row whose inputs are fetched ahead: a window's, or the first of a prompt.
constexpr int kListedTokens = 16;

// Lists inputs and outputs of the tokens: with the key head's first value head also keys and
// queries.
void list_tokens(const StepTask& task, int value_head, FetchAhead& ahead) {
  const StepArgs& args = *task.args;
  const HeadShape& shape = args.shape;
  const int first = task.row->first_token;
  for (int token = first; token < first + std::min(task.row->tokens, kListedTokens); ++token) {
    const float* row = input_row(args, token);
    if (value_head == task.first_value_head) {
      ahead.add(row + task.key_head * kKeyDim, kKeyDim * sizeof(float));
      ahead.add(row + (shape.key_heads + task.key_head) * kKeyDim, kKeyDim * sizeof(float));
    }
    const std::size_t head = static_cast<std::size_t>(token) * shape.value_heads + value_head;
    ahead.add(args.gate + head * shape.gate_width(), shape.gate_width() * sizeof(float));
    ahead.add(row + 2 * shape.key_heads * kKeyDim + value_head * kValueDim,
              kValueDim * sizeof(float));
    ahead.add(args.out + head * kValueDim, kValueDim * sizeof(float));
  }
}

// Lists the ring rows of a value head that a window reads, and those that it overwrites, since a
// processor reads a line before it changes a part of it.
void list_records(const StepTask& task, int value_head, const Cursor& cursor, FetchAhead& ahead) {
  const StepArgs& args = *task.args;
  const Depth end = cursor.committed + (task.kind == StepKind::window ? task.row->tokens : 0);
  for (Depth p = cursor.checkpoint; p < end; p += 1) {
    const int r = args.geometry.ring_row(p);
    if (value_head == task.first_value_head) {
      const RingKey key = ring_key(args.shape, args.rings, task.row->row, task.key_head, r);
      ahead.add(key.values.begin(), key.values.bytes());
    }
    const RingCorrection record =
        ring_correction(args.shape, args.rings, task.row->row, value_head, r);
    ahead.add(record.values.begin(), record.values.bytes());
    ahead.add(record.decay, args.shape.gate_width() * sizeof(float));
  }
}

// Lists what a value head of `task` is going to read.
void list_head(const StepTask& task, int value_head, FetchAhead& ahead) {
  const StepArgs& args = *task.args;
  const Cursor cursor = cursor_of(task);
  const bool packed = task.kind == StepKind::packed;
  ahead.clear();
  list_tokens(task, value_head, ahead);
  if (!packed) list_records(task, value_head, cursor, ahead);
  const Depth depth = packed ? cursor.committed : cursor.checkpoint;
  if (depth.tokens == 0) return;
  const std::size_t size = size_of(args.states.type);
  const auto at = static_cast<std::size_t>(args.cursors.base[task.row->row.value].value) *
                      args.states.slot_stride +
                  value_head * kHeadElements;
  ahead.add(static_cast<const std::byte*>(args.states.data) + at * size, kHeadElements * size);
}

void step_value_heads(const StepTask& task) {
  StepScratch& s = *task.scratch;
  SpanWalk walk(*task.row, cursor_of(task), task.args->geometry, task.kind);
  while (walk.next(s.plan)) {
    prepare_key_head(task);
    for (int head = task.first_value_head; head < task.first_value_head + task.value_heads;
         ++head) {
      if (head + 1 < task.first_value_head + task.value_heads)
        list_head(task, head + 1, s.ahead);
      else if (task.next != nullptr)
        list_head(*task.next, task.next->first_value_head, s.ahead);
      else
        s.ahead.clear();
      prepare_value_head(task, head);
      if (task.args->states.type == DType::bf16)
        work_span<bf16>(task, head);
      else
        work_span<float>(task, head);
      append_corrections(task, head);
    }
    if (!task.owns_keys) continue;
    for (int i = s.plan.keep_from; i < s.plan.tokens; ++i) {
      const int j = s.plan.pending + i;
      const int r = task.args->geometry.ring_row(s.plan.checkpoint + j);
      ring_key(task.args->shape, task.args->rings, task.row->row, task.key_head, r)
          .write(s.keys[j], s.key_scales[j]);
    }
  }
}

void append_keys(const StepTask& task) {
  const StepArgs& args = *task.args;
  StepScratch& s = *task.scratch;
  SpanWalk walk(*task.row, cursor_of(task), args.geometry, task.kind);
  while (walk.next(s.plan)) {
    for (int i = s.plan.keep_from; i < s.plan.tokens; ++i) {
      const int r = args.geometry.ring_row(s.plan.checkpoint + s.plan.pending + i);
      const float* key = stored_key(task, s.plan.first_token + i, s.key_rows.data());
      ring_key(args.shape, args.rings, task.row->row, task.key_head, r)
          .write(key, inverse_norm(key));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm::cpu {

HWY_EXPORT(step_value_heads);
HWY_EXPORT(append_keys);

void step_value_heads(const StepTask& task) { HWY_DYNAMIC_DISPATCH(step_value_heads)(task); }
void append_keys(const StepTask& task) { HWY_DYNAMIC_DISPATCH(append_keys)(task); }

}  // namespace replayssm::cpu
#endif
