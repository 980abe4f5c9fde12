#include "model/decoder.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "model/batch_check.h"
#include "model/decoder_step.h"
#include "model/kimi_linear.h"
#include "model/norm.h"
#include "model/qwen3_5.h"

namespace replayssm {
namespace {

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, Weights weights, const ModelOptions& options, ThreadPool& pool,
          LinearOps& ops)
      : config_(config),
        weights_(std::move(weights)),
        options_(options),
        threads_(pool.threads()),
        step_(config_, options_, pool, ops) {}

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  std::int64_t weight_bytes() const override { return weights_.bytes; }
  void observe(LayerObserver observer) override { observer_ = std::move(observer); }

  std::int64_t workspace_bytes(int tokens, int /*logit_rows*/) const override {
    return decoder_workspace_bytes(config_, options_, threads_, tokens);
  }

  Status forward(const Batch& batch, const SequenceViews& memory,
                 std::span<float> logits) override {
    REPLAYSSM_TRY(check_batch(batch, memory, logits.size(), config_, options_));
    if (batch.tokens.empty()) return {};
    step_.begin(batch, memory, weights_.embedding);
    report("embedding", activations().hidden, config_.hidden_size);
    std::size_t linear = 0;
    std::size_t attention = 0;
    for (std::size_t n = 0; n < weights_.layers.size(); ++n) {
      const LayerWeights& layer = weights_.layers[n];
      normalise(layer.mixer_norm_scale);
      if (const auto* gdn = std::get_if<GdnWeights>(&layer.mixer)) {
        REPLAYSSM_TRY(mix_gdn(step_, *gdn, memory, linear++));
      } else if (const auto* kda = std::get_if<KdaWeights>(&layer.mixer)) {
        REPLAYSSM_TRY(mix_kda(step_, *kda, memory, linear++));
      } else {
        mix_attention(step_, std::get<AttentionWeights>(layer.mixer), memory.kv[attention++]);
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
  const StepActivations& activations() const { return step_.activations(); }
  DType type() const { return options_.activations; }

  void report(std::string_view name, const float* values, int width) {
    if (!observer_) return;
    observer_(name,
              {values, static_cast<std::size_t>(step_.tokens()) * static_cast<std::size_t>(width)});
  }

  void normalise(const std::vector<float>& scale) {
    const StepActivations& act = activations();
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    step_.for_tokens([&](std::size_t first, int count) {
      rms_norm({act.hidden + first * width, width}, count, config_.hidden_size, scale.data(),
               config_.rms_norm_eps, type(), {act.normed + first * width, width});
    });
  }

  void add_update() {
    const StepActivations& act = activations();
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    step_.for_tokens([&](std::size_t first, int count) {
      add_rows(act.hidden + first * width, act.update + first * width,
               static_cast<std::size_t>(count) * width, type());
    });
  }

  void mlp(const MlpWeights& w) {
    const StepActivations& act = activations();
    step_.project(act.normed,
                  {DecoderStep::whole(w.gate, act.mlp_gate), DecoderStep::whole(w.up, act.mlp_up)});
    const auto width = static_cast<std::size_t>(config_.intermediate_size);
    step_.for_tokens([&](std::size_t first, int count) {
      float* gate = act.mlp_gate + first * width;
      silu_product(gate, act.mlp_up + first * width, static_cast<std::size_t>(count) * width,
                   type(), gate);
    });
    step_.project(act.mlp_gate, {DecoderStep::whole(w.down, act.update)});
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
    step_.project(act.normed, wanted, {&weights_.head, logits.data(), stride, config_.vocab_size},
                  true);
    for (std::size_t r = 0; r < static_cast<std::size_t>(wanted); ++r) {
      const auto row = logits.subspan(r * stride, stride);
      std::fill(row.begin() + config_.vocab_size, row.end(),
                -std::numeric_limits<float>::infinity());
    }
  }

  ModelConfig config_;
  Weights weights_;
  ModelOptions options_;
  int threads_;
  DecoderStep step_;
  LayerObserver observer_;
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

std::int64_t decoder_workspace_bytes(const ModelConfig& config, const ModelOptions& options,
                                     int threads, int tokens) {
  return DecoderStep::bytes(config, options, threads, tokens);
}

Result<std::unique_ptr<Model>> make_decoder(const ModelConfig& config, Weights weights,
                                            const ModelOptions& options, ThreadPool& pool,
                                            LinearOps& ops) {
  REPLAYSSM_TRY(check_options(options));
  return std::unique_ptr<Model>(
      std::make_unique<Decoder>(config, std::move(weights), options, pool, ops));
}

}  // namespace replayssm
