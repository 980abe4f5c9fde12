#include "model/mtp_head.h"

#include <algorithm>

#include "model/attention_layer.h"
#include "model/batch_check.h"
#include "model/decoder_blocks.h"
#include "model/norm.h"

namespace replayssm {

MtpHead::MtpHead(const MtpWeights& weights, const WeightMatrix& embedding, const WeightMatrix& head,
                 DecoderStep& step)
    : weights_(weights),
      embedding_(embedding),
      head_(head),
      step_(step),
      joined_(static_cast<std::size_t>(step.options().max_step_tokens) * 2 *
              static_cast<std::size_t>(step.config().hidden_size)) {}

std::int64_t MtpHead::scratch_bytes(const ModelConfig& config, int tokens) {
  return std::int64_t{tokens} * 2 * config.hidden_size * static_cast<std::int64_t>(sizeof(float));
}

Status MtpHead::draft(std::span<const TokenId> tokens, std::span<const DraftRow> rows,
                      const KvView& kv, std::span<float> hidden, std::span<float> logits) {
  REPLAYSSM_TRY(check_draft(tokens, rows, kv, hidden.size(), step_.config(), step_.options()));
  const std::size_t wanted_logits =
      wanted_rows(rows) * static_cast<std::size_t>(step_.config().vocab_rows);
  if (logits.size() != wanted_logits) {
    return refuse("draft: elements of logits", logits.size(), fmt::format("{}", wanted_logits));
  }
  if (tokens.empty()) return {};
  spans_.clear();
  for (const DraftRow& row : rows) {
    spans_.push_back({row.start, row.first_token, row.tokens, row.pages, Sight{1}});
  }
  step_.begin(tokens, spans_, embedding_);
  const ModelConfig& config = step_.config();
  const StepActivations& act = step_.activations();
  const auto width = static_cast<std::size_t>(config.hidden_size);
  float* joined = joined_.data();
  step_.for_tokens([&](std::size_t first, int count) {
    float* out = joined + first * 2 * width;
    rms_norm({act.hidden + first * width, width}, count, config.hidden_size,
             weights_.embedding_norm_scale.data(), config.rms_norm_eps, step_.type(),
             {out, 2 * width});
    rms_norm({hidden.data() + first * width, width}, count, config.hidden_size,
             weights_.hidden_norm_scale.data(), config.rms_norm_eps, step_.type(),
             {out + width, 2 * width});
  });
  step_.project(joined, {step_.whole(weights_.fc, act.hidden)});

  const LayerWeights& layer = weights_.layer;
  normalise(step_, layer.mixer_norm_scale);
  mix_attention(step_, std::get<AttentionWeights>(layer.mixer), kv);
  add_update(step_);
  normalise(step_, layer.mlp_norm_scale);
  mlp(step_, layer.mlp);
  add_update(step_);
  normalise(step_, weights_.norm_scale);
  std::copy_n(act.normed, tokens.size() * width, hidden.begin());

  int wanted = 0;
  for (const DraftRow& row : rows) {
    if (!row.logits) continue;
    const auto last = static_cast<std::size_t>(row.first_token + row.tokens - 1);
    std::copy_n(hidden.data() + last * width, width,
                act.normed + static_cast<std::size_t>(wanted) * width);
    ++wanted;
  }
  project_logits(step_, head_, act.normed, wanted, logits);
  return {};
}

}  // namespace replayssm
