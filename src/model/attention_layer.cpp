#include "model/attention_layer.h"

#include <algorithm>

#include "model/norm.h"
#include "model/rope.h"

namespace replayssm {
namespace {

// Normalises and rotates the heads of `count` tokens; x: head_dim values each stride.
void place_heads(const DecoderStep& step, std::size_t first, int count, ConstRows x, int heads,
                 const std::vector<float>& scale, float* out) {
  const StepActivations& act = step.activations();
  const int head_dim = step.config().attention.head_dim;
  const auto dim = static_cast<std::size_t>(head_dim);
  const auto n = static_cast<std::size_t>(heads);
  const std::size_t pairs = step.rotary_pairs();
  rms_norm({x.data + first * n * x.stride, x.stride}, count * heads, head_dim, scale.data(),
           step.config().rms_norm_eps, step.type(), {out + first * n * dim, dim});
  for (std::size_t t = first; t < first + static_cast<std::size_t>(count); ++t) {
    for (std::size_t h = 0; h < n; ++h) {
      rotate(out + (t * n + h) * dim, static_cast<int>(pairs), act.cosine + t * pairs,
             act.sine + t * pairs, step.type());
    }
  }
}

// Elements from one head's queries to the next one's: a gate may lie between.
std::size_t query_stride(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.head_dim) * (shape.output_gate ? 2 : 1);
}

}  // namespace

void project_heads(DecoderStep& step, const AttentionWeights& w) {
  const StepActivations& act = step.activations();
  const AttentionShape& shape = step.config().attention;
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  step.project(act.normed,
               {step.whole(w.q, act.q_and_gate), step.whole(w.k, act.k), step.whole(w.v, act.v)});
  step.for_tokens([&](std::size_t first, int count) {
    place_heads(step, first, count, {act.q_and_gate, query_stride(shape)}, shape.heads,
                w.q_norm_scale, act.q);
    place_heads(step, first, count, {act.k, dim}, shape.kv_heads, w.k_norm_scale, act.k);
  });
}

void project_keys(DecoderStep& step, const AttentionWeights& w) {
  const StepActivations& act = step.activations();
  const AttentionShape& shape = step.config().attention;
  step.project(act.normed, {step.whole(w.k, act.k), step.whole(w.v, act.v)});
  step.for_tokens([&](std::size_t first, int count) {
    place_heads(step, first, count, {act.k, static_cast<std::size_t>(shape.head_dim)},
                shape.kv_heads, w.k_norm_scale, act.k);
  });
}

void attend_and_project(DecoderStep& step, const AttentionWeights& w, const KvView& kv,
                        std::span<const AttentionSpan> spans) {
  const StepActivations& act = step.activations();
  const AttentionShape& shape = step.config().attention;
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto heads = static_cast<std::size_t>(shape.heads);
  if (step.has_null_rows()) {
    std::fill_n(act.attended, static_cast<std::size_t>(step.tokens()) * heads * dim, 0.0f);
  }
  step.attention().run(spans, act.q, kv, act.attended);

  const std::size_t stride = query_stride(shape);
  step.for_tokens([&](std::size_t first, int count) {
    float* out = act.attended + first * heads * dim;
    if (step.type() == DType::bf16)
      round_to_bf16(out, static_cast<std::size_t>(count) * heads * dim);
    if (!shape.output_gate) return;
    sigmoid_product({out, dim}, {act.q_and_gate + first * heads * stride + dim, stride},
                    count * shape.heads, shape.head_dim, step.type());
  });
  step.project(act.attended, {step.whole(w.out, act.update)});
}

void mix_attention(DecoderStep& step, const AttentionWeights& w, const KvView& kv) {
  const StepActivations& act = step.activations();
  project_heads(step, w);
  for (const AttentionSpan& span : step.spans()) {
    append_kv(span, step.config().attention, act.k, act.v, kv);
  }
  attend_and_project(step, w, kv, step.spans());
}

}  // namespace replayssm
