#include "model/qwen3_5.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "model/attention.h"
#include "model/batch_check.h"
#include "model/embedding.h"
#include "model/matmul.h"
#include "model/norm.h"
#include "model/onednn_product.h"
#include "model/rope.h"
#include "model/workspace.h"

namespace replayssm {
namespace {

MatmulPolicy policy_for(const ModelOptions& options) {
  return {options.deterministic, options.activations, onednn_has_bf16_instructions()};
}

// The widest input of any matrix product.
int widest_input(const ModelConfig& config) {
  return std::max({config.hidden_size, config.intermediate_size,
                   config.linear.value_heads * kValueDim,
                   config.attention.heads * config.attention.head_dim});
}

class Qwen35 final : public Model {
 public:
  Qwen35(const ModelConfig& config, Weights weights, const ModelOptions& options, ThreadPool& pool,
         LinearOps& ops)
      : config_(config),
        weights_(std::move(weights)),
        options_(options),
        pool_(pool),
        ops_(ops),
        frequencies_(rope_frequencies(config.rope)),
        matmul_(pool, policy_for(options), options.max_step_tokens, widest_input(config)),
        attention_(pool, config.attention, options.max_step_tokens),
        workspace_(config, options.max_step_tokens) {
    const auto rows = static_cast<std::size_t>(options.max_step_tokens);
    windows_.reserve(rows);
    chunks_.reserve(rows);
    all_rows_.reserve(rows);
    spans_.reserve(rows);
  }

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  std::int64_t weight_bytes() const override { return weights_.bytes; }
  void observe(LayerObserver observer) override { observer_ = std::move(observer); }

  std::int64_t workspace_bytes(int tokens, int /*logit_rows*/) const override {
    return qwen3_5_workspace_bytes(config_, options_, pool_.threads(), tokens);
  }

  Status forward(const Batch& batch, const SequenceViews& memory,
                 std::span<float> logits) override {
    REPLAYSSM_TRY(check_batch(batch, memory, logits.size(), config_, options_));
    if (batch.tokens.empty()) return {};
    begin(batch, memory);
    report("embedding", activations().hidden, config_.hidden_size);
    std::size_t linear = 0;
    std::size_t attention = 0;
    for (std::size_t n = 0; n < weights_.layers.size(); ++n) {
      const LayerWeights& layer = weights_.layers[n];
      normalise(layer.mixer_norm_scale);
      if (const auto* gdn = std::get_if<GdnWeights>(&layer.mixer)) {
        REPLAYSSM_TRY(mix_gdn(*gdn, memory, linear++));
      } else {
        mix_attention(std::get<AttentionWeights>(layer.mixer), memory.kv[attention++]);
      }
      if (observer_)
        report(fmt::format("layers.{}.mixer", n), activations().update, config_.hidden_size);
      add_update();
      normalise(layer.mlp_norm_scale);
      mlp(layer.mlp);
      add_update();
      if (observer_)
        report(fmt::format("layers.{}.output", n), activations().hidden, config_.hidden_size);
    }
    compute_logits(batch, logits);
    return {};
  }

 private:
  const StepActivations& activations() const { return workspace_.activations(); }
  DType type() const { return options_.activations; }

  void report(std::string_view name, const float* values, int width) {
    if (!observer_) return;
    observer_(name, {values, static_cast<std::size_t>(tokens_) * static_cast<std::size_t>(width)});
  }

  // Splits the tokens of the step over the pool; f(first, count) works on disjoint tokens.
  template <class F>
  void for_tokens(F&& f) {
    constexpr int kTokensPerTask = 8;
    const auto task = [&](std::size_t index, int) {
      const int first = static_cast<int>(index) * kTokensPerTask;
      f(static_cast<std::size_t>(first), std::min(kTokensPerTask, tokens_ - first));
    };
    const int tasks = (tokens_ + kTokensPerTask - 1) / kTokensPerTask;
    pool_.parallel_for(static_cast<std::size_t>(tasks), std::cref(task));
  }

  // Embeds the tokens, computes the angles of their positions, and sorts the rows by phase.
  void begin(const Batch& batch, const SequenceViews& memory) {
    const StepActivations& act = activations();
    tokens_ = static_cast<int>(batch.tokens.size());
    windows_.clear();
    chunks_.clear();
    all_rows_.clear();
    spans_.clear();
    const std::size_t pairs = frequencies_.size();
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    for (const BatchRow& row : batch.rows) {
      const RowTokens& span = row.span;
      (span.phase == Phase::prefill ? chunks_ : windows_).push_back(span);
      all_rows_.push_back(span);
      const auto first = static_cast<std::size_t>(span.first_token);
      const auto count = static_cast<std::size_t>(span.tokens);
      if (memory.cursors.base[span.row.value] == kNullSlot) {
        std::fill_n(act.hidden + first * width, count * width, 0.0f);
        continue;
      }
      const Depth start = memory.cursors.committed[span.row.value];
      spans_.push_back({start, span.first_token, span.tokens, row.pages});
      for (std::size_t i = first; i < first + count; ++i) {
        embed(weights_.embedding, batch.tokens[i], type(), act.hidden + i * width);
        rope_angles(frequencies_, config_.rope.attention_factor,
                    start + static_cast<int>(i - first), type(), act.cosine + i * pairs,
                    act.sine + i * pairs);
      }
    }
  }

  void normalise(const std::vector<float>& scale) {
    const StepActivations& act = activations();
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    for_tokens([&](std::size_t first, int count) {
      rms_norm({act.hidden + first * width, width}, count, config_.hidden_size, scale.data(),
               config_.rms_norm_eps, type(), {act.normed + first * width, width});
    });
  }

  void add_update() {
    const StepActivations& act = activations();
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    for_tokens([&](std::size_t first, int count) {
      add_rows(act.hidden + first * width, act.update + first * width,
               static_cast<std::size_t>(count) * width, type());
    });
  }

  static Product whole(const WeightMatrix& weight, float* out) {
    return {&weight, out, static_cast<std::size_t>(weight.rows), weight.rows};
  }

  void project(const float* x, std::initializer_list<Product> products) {
    const auto width = static_cast<std::size_t>(products.begin()->weight->cols);
    matmul_.run(x, width, tokens_, {products.begin(), products.size()});
  }

  Status mix_gdn(const GdnWeights& w, const SequenceViews& memory, std::size_t layer) {
    const StepActivations& act = activations();
    const HeadShape& shape = config_.linear;
    project(act.normed,
            {whole(w.qkv, act.qkv), whole(w.z, act.z), whole(w.b, act.b), whole(w.a, act.a)});

    ConvArgs conv;
    conv.geometry = options_.geometry;
    conv.recurrence = options_.recurrence;
    conv.rings = memory.conv_rings[layer];
    conv.tails = memory.conv_tails[layer];
    conv.cursors = memory.cursors;
    conv.weight = w.conv.data();
    conv.input = act.qkv;
    conv.out = act.qkv;
    conv.round_to = type();
    conv.rows = windows_;
    if (!windows_.empty()) REPLAYSSM_TRY(ops_.conv_window(conv));
    conv.rows = chunks_;
    if (!chunks_.empty()) REPLAYSSM_TRY(ops_.conv_chunk(conv));

    GateArgs gates;
    gates.shape = shape;
    gates.tokens = tokens_;
    gates.a = act.a;
    gates.b = act.b;
    gates.a_log = w.a_log.data();
    gates.dt_bias = w.dt_bias.data();
    gates.gate = act.gate;
    gates.beta = act.beta;
    REPLAYSSM_TRY(ops_.gates(gates));
    if (type() == DType::bf16) {
      round_to_bf16(act.beta, static_cast<std::size_t>(tokens_ * shape.value_heads));
    }

    StepArgs step;
    step.shape = shape;
    step.geometry = options_.geometry;
    step.states = memory.states[layer];
    if (!memory.rings.empty()) step.rings = memory.rings[layer];
    step.cursors = memory.cursors;
    step.qkv = act.qkv;
    step.gate = act.gate;
    step.beta = act.beta;
    step.out = act.core;
    if (options_.recurrence == Recurrence::packed) {
      step.rows = all_rows_;
      REPLAYSSM_TRY(ops_.packed_step(step));
    } else {
      step.rows = windows_;
      if (!windows_.empty()) REPLAYSSM_TRY(ops_.window_step(step));
      step.rows = chunks_;
      if (!chunks_.empty()) REPLAYSSM_TRY(ops_.chunk_prefill(step));
    }

    const auto heads = static_cast<std::size_t>(shape.value_heads);
    for_tokens([&](std::size_t first, int count) {
      const std::size_t at = first * heads * kValueDim;
      gated_rms_norm({act.core + at, kValueDim}, {act.z + at, kValueDim}, count * shape.value_heads,
                     kValueDim, w.norm_scale.data(), config_.rms_norm_eps, type(),
                     {act.core + at, kValueDim});
    });
    project(act.core, {whole(w.out, act.update)});
    return {};
  }

  void mix_attention(const AttentionWeights& w, const KvView& kv) {
    const StepActivations& act = activations();
    const AttentionShape& shape = config_.attention;
    const auto dim = static_cast<std::size_t>(shape.head_dim);
    const auto heads = static_cast<std::size_t>(shape.heads);
    const auto kv_heads = static_cast<std::size_t>(shape.kv_heads);
    const std::size_t q_stride = shape.output_gate ? 2 * dim : dim;
    const std::size_t pairs = frequencies_.size();
    project(act.normed, {whole(w.q, act.q_and_gate), whole(w.k, act.k), whole(w.v, act.v)});

    for_tokens([&](std::size_t first, int count) {
      rms_norm({act.q_and_gate + first * heads * q_stride, q_stride}, count * shape.heads,
               shape.head_dim, w.q_norm_scale.data(), config_.rms_norm_eps, type(),
               {act.q + first * heads * dim, dim});
      rms_norm({act.k + first * kv_heads * dim, dim}, count * shape.kv_heads, shape.head_dim,
               w.k_norm_scale.data(), config_.rms_norm_eps, type(),
               {act.k + first * kv_heads * dim, dim});
      for (std::size_t t = first; t < first + static_cast<std::size_t>(count); ++t) {
        const float* cosine = act.cosine + t * pairs;
        const float* sine = act.sine + t * pairs;
        for (std::size_t h = 0; h < heads; ++h) {
          rotate(act.q + (t * heads + h) * dim, static_cast<int>(pairs), cosine, sine, type());
        }
        for (std::size_t h = 0; h < kv_heads; ++h) {
          rotate(act.k + (t * kv_heads + h) * dim, static_cast<int>(pairs), cosine, sine, type());
        }
      }
    });
    for (const AttentionSpan& span : spans_) append_kv(span, shape, act.k, act.v, kv);
    if (spans_.size() < all_rows_.size()) {  // null rows
      std::fill_n(act.attended, static_cast<std::size_t>(tokens_) * heads * dim, 0.0f);
    }
    attention_.run(spans_, act.q, kv, act.attended);

    for_tokens([&](std::size_t first, int count) {
      float* out = act.attended + first * heads * dim;
      if (type() == DType::bf16) round_to_bf16(out, static_cast<std::size_t>(count) * heads * dim);
      if (!shape.output_gate) return;
      sigmoid_product({out, dim}, {act.q_and_gate + first * heads * q_stride + dim, q_stride},
                      count * shape.heads, shape.head_dim, type());
    });
    project(act.attended, {whole(w.out, act.update)});
  }

  void mlp(const MlpWeights& w) {
    const StepActivations& act = activations();
    project(act.normed, {whole(w.gate, act.mlp_gate), whole(w.up, act.mlp_up)});
    const auto width = static_cast<std::size_t>(config_.intermediate_size);
    for_tokens([&](std::size_t first, int count) {
      float* gate = act.mlp_gate + first * width;
      silu_product(gate, act.mlp_up + first * width, static_cast<std::size_t>(count) * width,
                   type(), gate);
    });
    project(act.mlp_gate, {whole(w.down, act.update)});
  }

  // The final norm and the head, for the rows that were asked for only. Logits stay fp32 whatever
  // the activations are.
  void compute_logits(const Batch& batch, std::span<float> logits) {
    const StepActivations& act = activations();
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    if (observer_) {
      normalise(weights_.final_norm_scale);
      report("norm", act.normed, config_.hidden_size);
    }
    int wanted = 0;
    for (const BatchRow& row : batch.rows) {
      const int end = row.span.first_token + row.span.tokens;
      const auto first = static_cast<std::size_t>(end - row.logits);
      rms_norm({act.hidden + first * width, width}, row.logits, config_.hidden_size,
               weights_.final_norm_scale.data(), config_.rms_norm_eps, type(),
               {act.normed + static_cast<std::size_t>(wanted) * width, width});
      wanted += row.logits;
    }
    if (wanted == 0) return;
    const auto stride = static_cast<std::size_t>(config_.vocab_rows);
    const Product head{&weights_.head, logits.data(), stride, config_.vocab_size};
    matmul_.run(act.normed, width, wanted, {&head, 1}, true);
    for (std::size_t r = 0; r < static_cast<std::size_t>(wanted); ++r) {
      const auto row = logits.subspan(r * stride, stride);
      std::fill(row.begin() + config_.vocab_size, row.end(),
                -std::numeric_limits<float>::infinity());
    }
  }

  ModelConfig config_;
  Weights weights_;
  ModelOptions options_;
  ThreadPool& pool_;
  LinearOps& ops_;
  std::vector<float> frequencies_;
  Matmul matmul_;
  Attention attention_;
  Workspace workspace_;
  LayerObserver observer_;

  // Of the current step.
  int tokens_ = 0;
  std::vector<RowTokens> windows_;
  std::vector<RowTokens> chunks_;
  std::vector<RowTokens> all_rows_;
  std::vector<AttentionSpan> spans_;  // rows that are not null
};

Status check_options(const ModelOptions& options) {
  if (options.activations != DType::f32 && options.activations != DType::bf16) {
    return refuse("dtype", name_of(options.activations), "float32 or bfloat16");
  }
  if (options.max_step_tokens < 1) {
    return refuse("max_step_tokens", options.max_step_tokens, "at least 1");
  }
  return {};
}

}  // namespace

std::int64_t qwen3_5_workspace_bytes(const ModelConfig& config, const ModelOptions& options,
                                     int threads, int tokens) {
  return Workspace::bytes(config, tokens) +
         Matmul::scratch_bytes(threads, policy_for(options), tokens, widest_input(config)) +
         Attention::scratch_bytes(threads, config.attention, tokens);
}

Result<std::unique_ptr<Model>> make_qwen3_5(const ModelConfig& config, Weights weights,
                                            const ModelOptions& options, ThreadPool& pool,
                                            LinearOps& ops) {
  REPLAYSSM_TRY(check_options(options));
  return std::unique_ptr<Model>(
      std::make_unique<Qwen35>(config, std::move(weights), options, pool, ops));
}

}  // namespace replayssm
