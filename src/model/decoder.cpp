#include "model/decoder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/attention_layer.h"
#include "model/batch_check.h"
#include "model/decoder_blocks.h"
#include "model/decoder_step.h"
#include "model/kimi_linear.h"
#include "model/mtp_head.h"
#include "model/norm.h"
#include "model/qwen3_5.h"

namespace replayssm {
namespace {

// The input of a draft head's first product takes two hidden states.
int joined_width(const ModelConfig& config, const ModelOptions& options) {
  return options.draft_head ? 2 * config.hidden_size : 0;
}

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, Weights weights, const ModelOptions& options, ThreadPool& pool,
          LinearOps& ops)
      : config_(config),
        weights_(std::move(weights)),
        options_(options),
        threads_(pool.threads()),
        step_(config_, options_, pool, ops, joined_width(config_, options_)) {
    if (weights_.draft_head) {
      head_.emplace(*weights_.draft_head, weights_.embedding, weights_.head, step_);
    }
  }

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  std::int64_t weight_bytes() const override { return weights_.bytes; }
  void observe(LayerObserver observer) override { observer_ = std::move(observer); }

  std::int64_t workspace_bytes(int tokens, int /*logit_rows*/) const override {
    return decoder_workspace_bytes(config_, options_, threads_, tokens);
  }

  const WeightMatrix& embedding() const override { return weights_.embedding; }
  const WeightMatrix& head() const override { return weights_.head; }
  DraftHead* draft_head() override { return head_ ? &*head_ : nullptr; }

  Status forward(const Batch& batch, const SequenceViews& memory, std::span<float> logits,
                 const HiddenTaps& hidden) override {
    REPLAYSSM_TRY(check_batch(batch, memory, logits.size(), config_, options_));
    REPLAYSSM_TRY(check_taps(hidden, batch.tokens.size(), config_));
    if (batch.tokens.empty()) return {};
    step_.begin(batch, weights_.embedding);
    report("embedding", activations().hidden, config_.hidden_size);
    keep(hidden, kTapEmbedding, activations().hidden);
    std::size_t linear = 0;
    std::size_t attention = 0;
    for (std::size_t n = 0; n < weights_.layers.size(); ++n) {
      const LayerWeights& layer = weights_.layers[n];
      normalise(step_, layer.mixer_norm_scale);
      if (const auto* gdn = std::get_if<GdnWeights>(&layer.mixer)) {
        REPLAYSSM_TRY(mix_gdn(step_, *gdn, memory, linear++));
      } else if (const auto* kda = std::get_if<KdaWeights>(&layer.mixer)) {
        REPLAYSSM_TRY(mix_kda(step_, *kda, memory, linear++));
      } else {
        mix_attention(step_, std::get<AttentionWeights>(layer.mixer), memory.kv[attention++]);
      }
      if (observer_)
        report(fmt::format("layers.{}.mixer", n), activations().update, config_.hidden_size);
      add_update(step_);
      normalise(step_, layer.mlp_norm_scale);
      mlp(step_, layer.mlp);
      add_update(step_);
      keep(hidden, static_cast<int>(n), activations().hidden);
      if (observer_)
        report(fmt::format("layers.{}.output", n), activations().hidden, config_.hidden_size);
    }
    compute_logits(batch, logits, hidden);
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

  // Copies `values`, [tokens, hidden_size], to where `tap` is asked for.
  void keep(const HiddenTaps& hidden, int tap, const float* values) {
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    const std::size_t stride = hidden.taps.size() * width;
    for (std::size_t at = 0; at < hidden.taps.size(); ++at) {
      if (hidden.taps[at] != tap) continue;
      for (std::size_t token = 0; token < static_cast<std::size_t>(step_.tokens()); ++token) {
        std::copy_n(values + token * width, width,
                    hidden.values.data() + token * stride + at * width);
      }
    }
  }

  // The final norm and the head, for the rows that were asked for only.
  void compute_logits(const Batch& batch, std::span<float> logits, const HiddenTaps& hidden) {
    const StepActivations& act = activations();
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    const bool all =
        std::find(hidden.taps.begin(), hidden.taps.end(), kTapFinalNorm) != hidden.taps.end();
    if (observer_ || all) {
      normalise(step_, weights_.final_norm_scale);
      report("norm", act.normed, config_.hidden_size);
      keep(hidden, kTapFinalNorm, act.normed);
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
    project_logits(step_, weights_.head, act.normed, wanted, logits);
  }

  ModelConfig config_;
  Weights weights_;
  ModelOptions options_;
  int threads_;
  DecoderStep step_;
  std::optional<MtpHead> head_;
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
  return DecoderStep::bytes(config, options, threads, tokens, joined_width(config, options)) +
         (options.draft_head ? MtpHead::scratch_bytes(config, tokens) : 0);
}

Result<std::unique_ptr<Model>> make_decoder(const ModelConfig& config, Weights weights,
                                            const ModelOptions& options, ThreadPool& pool,
                                            LinearOps& ops) {
  REPLAYSSM_TRY(check_options(options));
  return std::unique_ptr<Model>(
      std::make_unique<Decoder>(config, std::move(weights), options, pool, ops));
}

}  // namespace replayssm
