#include "model/block_draft_model.h"

#include <algorithm>

#include "model/attention_layer.h"
#include "model/decoder_blocks.h"
#include "model/norm.h"

namespace replayssm {
namespace {

// The widest input of a product beside the layers': features, and what the heads join.
int widest_joined(const BlockDraftConfig& config) {
  const int hidden = config.decoder.hidden_size;
  return std::max(config.features() * hidden, hidden + 2 * config.markov_rank);
}

std::size_t kv_width(const ModelConfig& decoder) {
  return static_cast<std::size_t>(decoder.attention.kv_heads) *
         static_cast<std::size_t>(decoder.attention.head_dim);
}

// Keys and values of so many tokens, in the widest type of pages.
std::size_t block_kv_bytes(const BlockDraftConfig& config, int tokens) {
  return 2 * static_cast<std::size_t>(tokens) * kv_width(config.decoder) * sizeof(float);
}

std::size_t kernel_elements(const BlockDraftConfig& config) {
  if (config.conv_taps == 0) return 0;
  return 2 * static_cast<std::size_t>(config.conv_taps) *
         static_cast<std::size_t>(config.decoder.hidden_size / config.conv_group);
}

std::size_t convolved_elements(const BlockDraftConfig& config) {
  return config.conv_taps == 0 ? 0 : static_cast<std::size_t>(config.decoder.hidden_size);
}

}  // namespace

BlockDraftModel::BlockDraftModel(const BlockDraftConfig& config, const BlockDraftWeights& weights,
                                 const Model& target, const ModelOptions& options, ThreadPool& pool,
                                 LinearOps& ops)
    : config_(config),
      weights_(weights),
      embedding_(target.embedding()),
      head_(target.head()),
      options_(options),
      step_(config_.decoder, options_, pool, ops, widest_joined(config)),
      block_kv_(block_kv_bytes(config, options.max_step_tokens)),
      kernels_(static_cast<std::size_t>(options.max_step_tokens) * kernel_elements(config)),
      convolved_(static_cast<std::size_t>(options.max_step_tokens) * convolved_elements(config)) {}

std::int64_t BlockDraftModel::bytes(const BlockDraftConfig& config, const ModelOptions& options,
                                    int threads) {
  const int tokens = options.max_step_tokens;
  const std::size_t floats =
      static_cast<std::size_t>(tokens) * (kernel_elements(config) + convolved_elements(config));
  return DecoderStep::bytes(config.decoder, options, threads, tokens, widest_joined(config)) +
         static_cast<std::int64_t>(block_kv_bytes(config, tokens) + floats * sizeof(float));
}

Status BlockDraftModel::add_context(std::span<const float> features,
                                    std::span<const ContextRow> rows, std::span<const KvView> kv) {
  spans_.clear();
  int tokens = 0;
  for (const ContextRow& row : rows) {
    spans_.push_back({row.start, tokens, row.tokens, row.pages});
    tokens += row.tokens;
  }
  const ModelConfig& decoder = config_.decoder;
  const auto width = static_cast<std::size_t>(decoder.hidden_size);
  const std::size_t wanted =
      static_cast<std::size_t>(tokens) * static_cast<std::size_t>(config_.features()) * width;
  if (tokens > options_.max_step_tokens || features.size() != wanted) {
    return refuse("drafter: features", features.size(),
                  fmt::format("{}, of at most {} tokens", wanted, options_.max_step_tokens));
  }
  if (tokens == 0) return {};
  step_.begin(spans_);
  const StepActivations& act = step_.activations();
  step_.project(features.data(), {step_.whole(weights_.fc, act.hidden)});
  normalise(step_, weights_.hidden_norm_scale);
  for (std::size_t n = 0; n < weights_.layers.size(); ++n) {
    project_keys(step_, std::get<AttentionWeights>(weights_.layers[n].mixer));
    for (const AttentionSpan& span : spans_) {
      append_kv(span, decoder.attention, act.k, act.v, kv[n]);
    }
  }
  return {};
}

Status BlockDraftModel::run_blocks(std::span<const BlockRow> rows, std::span<const KvView> kv,
                                   std::span<float> hidden, std::span<float> logits) {
  const auto width = static_cast<std::size_t>(config_.decoder.hidden_size);
  const auto drafts = static_cast<std::size_t>(config_.drafts());
  const std::size_t predicted = rows.size() * drafts;
  const int blocks = static_cast<int>(rows.size());
  if (blocks * config_.block > options_.max_step_tokens || hidden.size() != predicted * width ||
      logits.size() != predicted * static_cast<std::size_t>(config_.decoder.vocab_rows)) {
    return refuse("drafter: blocks", blocks,
                  fmt::format("at most {}, with room for what {} drafts each need",
                              options_.max_step_tokens / config_.block, drafts));
  }
  if (rows.empty()) return {};
  spans_.clear();
  tokens_.clear();
  for (const BlockRow& row : rows) {
    spans_.push_back({row.start, static_cast<int>(tokens_.size()), config_.block, row.pages});
    tokens_.push_back(row.anchor);
    tokens_.resize(tokens_.size() + static_cast<std::size_t>(config_.block) - 1, config_.mask);
  }
  step_.begin(tokens_, spans_, embedding_);
  const StepActivations& act = step_.activations();
  if (config_.embedding_scale != 1.0) {
    const auto scale = static_cast<float>(config_.embedding_scale);
    for (std::size_t i = 0; i < tokens_.size() * width; ++i) act.hidden[i] *= scale;
    if (step_.type() == DType::bf16) round_to_bf16(act.hidden, tokens_.size() * width);
  }
  for (std::size_t n = 0; n < weights_.layers.size(); ++n) run_layer(n, kv[n], blocks);
  normalise(step_, weights_.norm_scale);

  const auto first = static_cast<std::size_t>(config_.block) - drafts;
  for (std::size_t b = 0; b < rows.size(); ++b) {
    const std::size_t row = b * static_cast<std::size_t>(config_.block) + first;
    std::copy_n(act.normed + row * width, drafts * width, hidden.data() + b * drafts * width);
  }
  project_logits(step_, head_, hidden.data(), static_cast<int>(predicted), logits);
  // A selector does this for its candidates alone.
  if (config_.scales_logits() && !weights_.selector) {
    const auto stride = static_cast<std::size_t>(config_.decoder.vocab_rows);
    for (std::size_t row = 0; row < predicted; ++row) {
      const auto real =
          logits.subspan(row * stride, static_cast<std::size_t>(config_.decoder.vocab_size));
      for (float& logit : real) logit = config_.scaled_logit(logit);
    }
  }
  return {};
}

void BlockDraftModel::run_layer(std::size_t layer, const KvView& kv, int blocks) {
  const StepActivations& act = step_.activations();
  const LayerWeights& w = weights_.layers[layer];
  const auto& attention = std::get<AttentionWeights>(w.mixer);
  const AttentionShape& shape = config_.decoder.attention;
  const bool convolved = config_.conv_taps > 0;
  normalise(step_, w.mixer_norm_scale);
  if (convolved) {
    project_kernel(weights_.attention_convs[layer]);
    convolve(weights_.attention_convs[layer], 0, act.normed, blocks, act.normed);
  }
  project_heads(step_, attention);

  // The block's own keys and values, rounded as pages would: one page that holds all its rows.
  const std::size_t values =
      static_cast<std::size_t>(step_.tokens()) * kv_width(config_.decoder) * size_of(kv.type);
  const KvView own{block_kv_.data(), block_kv_.data() + values, kv.type, 1, step_.tokens()};
  constexpr PageId kOnly[] = {PageId{0}};
  append_kv({Depth{0}, 0, step_.tokens(), kOnly}, shape, act.k, act.v, own);
  const BlockAttention& kind = config_.attention[layer];
  for (AttentionSpan& span : spans_) {
    const std::size_t at =
        static_cast<std::size_t>(span.first_token) * kv_width(config_.decoder) * size_of(kv.type);
    span.sight = {0, kind.window, !kind.causal};
    span.own = OwnKv{block_kv_.data() + at, block_kv_.data() + values + at};
  }
  attend_and_project(step_, attention, kv, spans_);
  if (convolved) {
    convolve(weights_.attention_convs[layer], 1, act.update, blocks, act.update);
  }
  add_update(step_);

  normalise(step_, w.mlp_norm_scale);
  if (convolved) {
    project_kernel(weights_.mlp_convs[layer]);
    convolve(weights_.mlp_convs[layer], 0, act.normed, blocks, act.normed);
  }
  mlp(step_, w.mlp);
  if (convolved) convolve(weights_.mlp_convs[layer], 1, act.update, blocks, act.update);
  add_update(step_);
}

// kernels_ from activations().normed, before it is convolved.
void BlockDraftModel::project_kernel(const BlockConvWeights& conv) {
  step_.project(step_.activations().normed, {step_.whole(conv.projection, kernels_.data())});
}

// y[k][c] = sum_tap (base[side][tap][c] + kernel[k][side][tap][group of c]) x[k - tap][c] over the
// rows k of each block; rows before the first count as 0. `out` may be `x`.
void BlockDraftModel::convolve(const BlockConvWeights& conv, int side, const float* x, int blocks,
                               float* out) {
  const auto width = static_cast<std::size_t>(config_.decoder.hidden_size);
  const auto block = static_cast<std::size_t>(config_.block);
  const auto taps = static_cast<std::size_t>(config_.conv_taps);
  const auto group = static_cast<std::size_t>(config_.conv_group);
  const std::size_t groups = width / group;
  const float* base = conv.base.data() + static_cast<std::size_t>(side) * taps * width;
  float* sums = convolved_.data();
  std::fill_n(sums, static_cast<std::size_t>(blocks) * block * width, 0.0f);
  for (std::size_t row = 0; row < static_cast<std::size_t>(blocks) * block; ++row) {
    const float* kernel =
        kernels_.data() + (row * 2 + static_cast<std::size_t>(side)) * taps * groups;
    const std::size_t reach = std::min(taps, row % block + 1);
    for (std::size_t tap = 0; tap < reach; ++tap) {
      const float* from = x + (row - tap) * width;
      for (std::size_t c = 0; c < width; ++c) {
        sums[row * width + c] +=
            (base[tap * width + c] + kernel[tap * groups + c / group]) * from[c];
      }
    }
  }
  const std::size_t count = static_cast<std::size_t>(blocks) * block * width;
  std::copy_n(sums, count, out);
  if (step_.type() == DType::bf16) round_to_bf16(out, count);
}

}  // namespace replayssm
