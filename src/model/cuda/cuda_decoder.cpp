#include "model/cuda/cuda_decoder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "model/batch_check.h"
#include "model/cuda/cuda_draft_head.h"
#include "model/cuda/decoder_buffers.h"
#include "model/cuda/decoder_kernels.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/gemm.h"
#include "model/cuda/head_args.h"
#include "model/cuda/hidden_copies.h"
#include "model/cuda/matvec.h"
#include "model/cuda/paged_attention.h"
#include "model/cuda/step_graphs.h"
#include "model/cuda/step_tables.h"
#include "model/cuda/token_choices.h"
#include "model/rope.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::cuda {
namespace {

// K^-1/2.
constexpr float kQueryScale = 0.08838834764831845f;

// The next of the numbers of rows that steps are captured for: 1, 2, 4, multiples of 8 up to 64,
// and multiples of 32.
int padded_rows(int rows) {
  if (rows <= 2) return rows;
  if (rows <= 4) return 4;
  const int step = rows <= 64 ? 8 : 32;
  return (rows + step - 1) / step * step;
}

class CudaDecoder final : public Model {
 public:
  CudaDecoder(const ModelConfig& config, const ModelOptions& options, const CudaDecoderSizes& sizes,
              cudaStream_t stream)
      : config_(config), options_(options), sizes_(sizes), stream_(stream) {}

  Status load(Weights weights) {
    auto placed = DeviceWeights::copy_of(weights, config_);
    if (!placed) return placed.error();
    weights_ = std::move(*placed);
    if (options_.host_embeddings) {
      weights.keep_embedding_and_head();
      host_weights_ = std::move(weights);
    }
    const auto limits = device_limits();
    if (!limits) return limits.error();
    limits_ = *limits;
    DecoderActivations counted;
    const StepSizes step = step_sizes(options_.max_step_tokens, sizes_.logit_rows);
    auto memory = DeviceBuffer::make(
        static_cast<std::size_t>(carve_activations(config_, step, nullptr, counted)));
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    carve_activations(config_, step, memory_.as<std::byte>(), activations_);
    std::optional<FixedAlgorithms> fixed;
    if (options_.deterministic) fixed.emplace().most_tokens = options_.max_step_tokens;
    auto gemm = Gemm::make(fixed, {options_.max_step_tokens, float8_cols(config_)});
    if (!gemm) return gemm.error();
    gemm_.emplace(std::move(*gemm));
    auto tables = StepTables::make(step);
    if (!tables) return tables.error();
    tables_.emplace(std::move(*tables));
    auto choices = TokenChoices::make(sizes_.rows, sizes_.logit_rows, config_.vocab_size, stream_);
    if (!choices) return choices.error();
    choices_.emplace(std::move(*choices));
    if (config_.attention.heads > 0) {
      auto attention = PagedAttention::make(config_.attention, sizes_.page_tokens, sizes_.rows,
                                            AttentionOrder{options_.deterministic, 0});
      if (!attention) return attention.error();
      attention_.emplace(std::move(*attention));
      const std::vector<float> frequencies = rope_frequencies(config_.rope);
      rope_.pairs = static_cast<int>(frequencies.size());
      if (rope_.pairs % 8 != 0) {
        return refuse("rotary dimensions", 2 * rope_.pairs, "a multiple of 16 on cuda");
      }
      auto copied = DeviceBuffer::copy_of(frequencies.data(), frequencies.size() * sizeof(float));
      if (!copied) return copied.error();
      frequencies_ = std::move(*copied);
      rope_.frequencies = frequencies_.as<float>();
    }
    return weights_.draft_head ? make_draft_head() : Status{};
  }

  Status make_draft_head() {
    DraftHeadParts parts;
    parts.config = &config_;
    parts.options = &options_;
    parts.weights = &*weights_.draft_head;
    parts.embedding = weights_.embedding;
    parts.head = weights_.head;
    parts.rope = rope_;
    parts.page_tokens = sizes_.page_tokens;
    parts.sizes = step_sizes(options_.max_step_tokens, sizes_.logit_rows);
    parts.gemm = &*gemm_;
    parts.activations = &activations_;
    auto head = make_cuda_draft_head(parts, stream_);
    if (!head) return head.error();
    draft_head_ = std::move(*head);
    return {};
  }

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  std::int64_t weight_bytes() const override { return weights_.bytes(); }
  std::int64_t workspace_bytes(int tokens, int logit_rows) const override {
    return decoder_device_bytes(config_, step_sizes(tokens, logit_rows), options_.draft_head,
                                options_.deterministic);
  }
  // Empty without options.host_embeddings.
  const WeightMatrix& embedding() const override { return host_weights_.embedding; }
  const WeightMatrix& head() const override { return host_weights_.head; }
  DraftHead* draft_head() override { return draft_head_.get(); }
  void observe(LayerObserver observer) override { observer_ = std::move(observer); }

  bool chooses_tokens() const override { return true; }

  Status forward(const Batch& batch, const SequenceViews& memory, std::span<float> logits,
                 const HiddenTaps& hidden) override {
    forget_launched();
    REPLAYSSM_TRY(check_batch(batch, memory, logits.size(), config_, options_));
    REPLAYSSM_TRY(begin_taps(hidden, batch.tokens.size()));
    if (batch.tokens.empty()) return {};
    REPLAYSSM_TRY(evaluate(batch, memory));
    REPLAYSSM_TRY(read_logits(logits));
    hidden_copies_.widen(hidden.values);
    return {};
  }

  Status launch(const Batch& batch, const SequenceViews& memory,
                const HiddenTaps& hidden) override {
    std::size_t logit_rows = 0;
    for (const BatchRow& row : batch.rows) logit_rows += static_cast<std::size_t>(row.logits);
    REPLAYSSM_TRY(check_batch(batch, memory,
                              logit_rows * static_cast<std::size_t>(config_.vocab_rows), config_,
                              options_));
    if (choices_->launched() > (hidden.taps.empty() ? 1 : 0)) {
      return refuse("launch: steps that are not taken", choices_->launched(),
                    hidden.taps.empty() ? "at most one" : "none, with hidden states");
    }
    REPLAYSSM_TRY(begin_taps(hidden, batch.tokens.size()));
    hidden_ = hidden.values;
    return batch.tokens.empty() ? Status{} : evaluate(batch, memory);
  }

  Status choose(std::span<const TokenChoice> choices) override {
    TokenChoiceArgs args;
    args.logits = activations_.logits;
    args.stride = config_.vocab_rows;
    args.best_parts = activations_.best_parts;
    args.chosen = activations_.best;
    return settled(choices_->launch(choices, args));
  }

  Result<std::span<const ChosenToken>> take() override {
    auto chosen = choices_->take();
    if (chosen) hidden_copies_.widen(hidden_);
    return chosen;
  }

  void forget_launched() override { choices_->forget_launched(); }

 private:
  StepSizes step_sizes(int tokens, int logit_rows) const {
    return {tokens, sizes_.rows, logit_rows,
            most_row_pages(config_, sizes_.context_length, sizes_.page_tokens)};
  }

  Status begin_taps(const HiddenTaps& hidden, std::size_t tokens) {
    REPLAYSSM_TRY(check_taps(hidden, tokens, config_));
    return hidden_copies_.set(hidden.taps, options_.max_step_tokens, config_.hidden_size);
  }

  // What the kernels ask beyond what every device does.
  Status check_rows(const Batch& batch) const {
    bool chunk_before = false;
    for (const BatchRow& row : batch.rows) {
      const bool chunk = row.span.phase == Phase::prefill;
      if (!chunk && chunk_before) {
        return refuse("batch.rows", "a window behind a prompt chunk", "windows first on cuda");
      }
      chunk_before = chunk;
      if (options_.recurrence == Recurrence::packed && row.span.tokens > 1) {
        return refuse("row.span.tokens", row.span.tokens,
                      "1 with --disable-linear-replayssm on cuda");
      }
    }
    return {};
  }

  Status evaluate(const Batch& batch, const SequenceViews& memory) {
    return settled(start(batch, memory));
  }

  // What a failed step has queued still reads the tables that the next one writes.
  Status settled(Status started) {
    if (!started) {
      static_cast<void>(wait_for(stream_));
      choices_->forget_launched();
    }
    return started;
  }

  // Windows of one length are padded to one of few numbers of rows and launched as a graph.
  Status start(const Batch& batch, const SequenceViews& memory) {
    REPLAYSSM_TRY(check_rows(batch));
    const int window = uniform_window(batch);
    const bool graph = window > 0 && !observer_ && sizes_.graphs;
    if (graph) pad(batch, window, memory.cursors.null_row);
    REPLAYSSM_TRY(tables_->write(graph ? padded_ : batch, sizes_.page_tokens, stream_));
    if (attention_) REPLAYSSM_TRY(attention_->plan(tables_->attention(), graph, stream_));
    if (!graph) return launch_all(memory);
    const StepShape shape{tables_->windows().count, tables_->token_count(),
                          tables_->logit_rows(),    tables_->tokens(),
                          memory.cursors.committed, attention_ ? attention_->cut_shape() : 0,
                          hidden_copies_.version()};
    return graphs_.run(shape, stream_, [&] { return launch_all(memory); });
  }

  // The tokens of every row, where they are equally many windows with logits for all; otherwise 0.
  static int uniform_window(const Batch& batch) {
    const int tokens = batch.rows.front().span.tokens;
    const bool uniform = std::all_of(batch.rows.begin(), batch.rows.end(), [&](const auto& row) {
      return row.span.phase != Phase::prefill && row.span.tokens == tokens && row.logits == tokens;
    });
    return uniform ? tokens : 0;
  }

  // The batch with null rows behind its own, as padded_.
  void pad(const Batch& batch, int window, RowIndex null_row) {
    padded_ = batch;
    const int most =
        std::min({sizes_.rows, sizes_.logit_rows / window, options_.max_step_tokens / window});
    const int rows = static_cast<int>(batch.rows.size());
    const int wanted = null_row == RowIndex{} ? rows : std::min(padded_rows(rows), most);
    for (int r = rows; r < wanted; ++r) {
      BatchRow& row = padded_.rows.emplace_back();
      row.span = {null_row, static_cast<int>(padded_.tokens.size()), window,
                  batch.rows.front().span.phase};
      row.logits = window;
      row.null = true;
      padded_.tokens.insert(padded_.tokens.end(), static_cast<std::size_t>(window), 0);
    }
  }

  Status launch_all(const SequenceViews& memory) {
    const int tokens = tables_->token_count();
    const int width = config_.hidden_size;
    REPLAYSSM_TRY(launch_embed({tables_->tokens(), activations_.best, weights_.embedding.data,
                                activations_.hidden, tokens, width},
                               stream_));
    REPLAYSSM_TRY(hidden_copies_.copy(kTapEmbedding, activations_.hidden, tokens, stream_));
    REPLAYSSM_TRY(report("embedding", activations_.hidden, width));
    std::size_t linear = 0, attention = 0;
    for (std::size_t n = 0; n < weights_.layers.size(); ++n) {
      const DeviceLayer& layer = weights_.layers[n];
      if (const auto* gdn = std::get_if<DeviceGdn>(&layer.mixer)) {
        REPLAYSSM_TRY(mix_gdn(layer.mixer_norm_scale, *gdn, memory, linear++));
      } else {
        REPLAYSSM_TRY(mix_attention(layer.mixer_norm_scale, std::get<DeviceAttention>(layer.mixer),
                                    memory.kv[attention++]));
      }
      REPLAYSSM_TRY(mlp(layer));
      REPLAYSSM_TRY(hidden_copies_.copy(static_cast<int>(n), activations_.hidden, tokens, stream_));
      if (observer_) {
        REPLAYSSM_TRY(report(fmt::format("layers.{}.output", n), activations_.hidden, width));
      }
    }
    return compute_logits();
  }

  // One way for every number of tokens where a token's bits must not depend on it.
  bool takes_matvec(const DeviceMatrix& weight, int tokens) const {
    return !options_.deterministic && matvec_fits(weight, tokens, limits_.shared_bytes_per_block);
  }

  // out = W norm(hidden).
  Status normed_product(const float* scale, const DeviceMatrix& weight, bf16* out) {
    const DecoderActivations& act = activations_;
    const int tokens = tables_->token_count();
    if (takes_matvec(weight, tokens)) {
      MatvecArgs args = matvec(MatvecInput::rms_norm, act.hidden, weight, out);
      args.scale = scale;
      args.eps = eps();
      return launch_matvec(args, stream_);
    }
    REPLAYSSM_TRY(launch_rms_norm(
        {act.hidden, nullptr, scale, eps(), act.normed, tokens, config_.hidden_size}, stream_));
    return gemm_->run(weight, act.normed, tokens, {out}, stream_);
  }
  // hidden += W x.
  Status add_product(const DeviceMatrix& weight, const bf16* x) {
    return gemm_->run(weight, x, tables_->token_count(), {activations_.hidden, DType::bf16, true},
                      stream_);
  }
  // The same by launch_matvec(); what makes x of `from` is the caller's to fill in.
  MatvecArgs added_matvec(MatvecInput input, const bf16* from, const DeviceMatrix& weight) const {
    MatvecArgs args = matvec(input, from, weight, activations_.hidden);
    args.add = true;
    return args;
  }
  MatvecArgs matvec(MatvecInput input, const bf16* from, const DeviceMatrix& weight,
                    bf16* out) const {
    MatvecArgs args;
    args.input = input;
    args.from = from;
    args.weight = weight;
    args.out = out;
    return args;
  }

  Status mix_gdn(const float* norm_scale, const DeviceGdn& w, const SequenceViews& memory,
                 std::size_t layer) {
    const DecoderActivations& act = activations_;
    const HeadShape& heads = config_.linear;
    const int values = heads.value_heads * kValueDim;
    const std::int64_t stride = w.in.rows;
    const bf16* const z = act.linear_in + heads.channels();
    const bf16* const b = z + values;
    const bf16* const a = b + heads.value_heads;
    const int tokens = tables_->token_count();
    REPLAYSSM_TRY(normed_product(norm_scale, w.in, act.linear_in));
    REPLAYSSM_TRY(convolve(
        w, memory, layer,
        {a, b, stride, w.a_log, w.dt_bias, act.gate, act.beta, tokens, heads.value_heads}));
    REPLAYSSM_TRY(step_states(memory, layer));
    if (takes_matvec(w.out, tokens)) {
      MatvecArgs args = added_matvec(MatvecInput::gated_norm, act.core, w.out);
      args.scale = w.norm_scale;
      args.eps = eps();
      args.gate = z;
      return launch_matvec(args, stream_);
    }
    REPLAYSSM_TRY(launch_gated_norm(
        {act.core, z, stride, w.norm_scale, eps(), act.mixed, tokens, heads.value_heads}, stream_));
    return add_product(w.out, act.mixed);
  }

  // The gates are those of all tokens: the first launch makes them.
  Status convolve(const DeviceGdn& w, const SequenceViews& memory, std::size_t layer,
                  GateProjections gates) {
    ConvArgs args;
    args.geometry = options_.geometry;
    args.recurrence = options_.recurrence;
    args.rings = memory.conv_rings[layer];
    args.tails = memory.conv_tails[layer];
    args.cursors = memory.cursors;
    args.weight = w.conv;
    args.input_bf16 = activations_.linear_in;
    args.out_bf16 = activations_.qkv;
    for (const bool chunks : {false, true}) {
      const StepRows& rows = chunks ? tables_->chunks() : tables_->windows();
      if (rows.count == 0) continue;
      ConvLaunch launch = conv_launch(args, chunks, rows.tasks, rows.task_count);
      launch.input_stride = w.in.rows;
      launch.settled = 1;
      launch.gates = std::exchange(gates, {});
      REPLAYSSM_TRY(launch_conv(launch, stream_));
    }
    return {};
  }

  Status step_states(const SequenceViews& memory, std::size_t layer) {
    const bool packed = options_.recurrence == Recurrence::packed;
    for (const bool chunks : {false, true}) {
      const StepRows& rows = chunks ? tables_->chunks() : tables_->windows();
      if (rows.count == 0) continue;
      const int window = packed ? 1 : options_.geometry.window_max();
      const StepGeometry geometry{config_.linear,
                                  memory.states[layer].type,
                                  options_.geometry.fold_block(),
                                  options_.geometry.ring_rows(),
                                  rows.count,
                                  window};
      const auto plan = packed   ? plan_packed_step(geometry, limits_)
                        : chunks ? plan_chunk_prefill(geometry, limits_)
                                 : plan_window_step(geometry, limits_);
      if (!plan) return plan.error();
      StepArgs args = step_args(memory, layer, rows, !packed && (chunks || window > 1));
      // One token a row, behind the windows'.
      if (packed && chunks) skip_tokens(args, tables_->windows().count);
      REPLAYSSM_TRY(packed   ? launch_packed_step(*plan, args, stream_)
                    : chunks ? launch_chunk_prefill(*plan, args, stream_)
                             : launch_window_step(*plan, args, stream_));
    }
    return {};
  }

  void skip_tokens(StepArgs& args, std::int64_t tokens) const {
    const std::int64_t heads = config_.linear.value_heads;
    args.qkv += tokens * args.token_stride;
    args.gate += tokens * heads;
    args.beta += tokens * heads;
    args.out = static_cast<bf16*>(args.out) + tokens * heads * kValueDim;
  }

  // `several`: rows have several tokens, or those of another place in the batch.
  StepArgs step_args(const SequenceViews& memory, std::size_t layer, const StepRows& rows,
                     bool several) const {
    const DecoderActivations& act = activations_;
    const StateView& states = memory.states[layer];
    StepArgs args;
    args.batch = {rows.row,
                  &memory.cursors.committed->tokens,
                  &memory.cursors.checkpoint->tokens,
                  &memory.cursors.base->value,
                  &memory.cursors.home->value,
                  rows.count,
                  several ? rows.first_token : nullptr,
                  several ? rows.tokens : nullptr};
    args.state = {states.data, static_cast<std::int64_t>(states.slot_stride)};
    if (!memory.rings.empty()) {
      const RingView& rings = memory.rings[layer];
      args.ring = {static_cast<bf16*>(rings.keys), rings.key_scales, rings.corrections,
                   rings.gates};
      args.ring_rows = rings.ring_rows;
    }
    args.qkv = act.qkv;
    args.token_stride = config_.linear.channels();
    args.gate = act.gate;
    args.beta = act.beta;
    args.out = act.core;
    args.key_heads = config_.linear.key_heads;
    args.value_heads = config_.linear.value_heads;
    args.fold_block = options_.geometry.fold_block();
    args.query_scale = kQueryScale;
    // Cursors move between steps, and a layer's states and rings are its own.
    args.settled = 1;
    return args;
  }

  Status mix_attention(const float* norm_scale, const DeviceAttention& w, const KvView& kv) {
    const DecoderActivations& act = activations_;
    const AttentionShape& shape = config_.attention;
    const int tokens = tables_->token_count();
    const std::int64_t stride = w.in.rows;
    REPLAYSSM_TRY(normed_product(norm_scale, w.in, act.attention_in));
    const HeadArgs heads = head_args(config_, w, act, *tables_, kv, rope_);
    REPLAYSSM_TRY(launch_place_heads(heads, stream_));
    REPLAYSSM_TRY(attention_->run(tables_->attention(), act.queries, heads.keys, heads.values,
                                  act.mixed, stream_));
    const bf16* const gate = act.attention_in + shape.head_dim;
    if (takes_matvec(w.out, tokens)) {
      MatvecArgs args = added_matvec(
          shape.output_gate ? MatvecInput::sigmoid_product : MatvecInput::plain, act.mixed, w.out);
      args.gate = gate;
      args.head_dim = shape.head_dim;
      return launch_matvec(args, stream_);
    }
    if (shape.output_gate) {
      REPLAYSSM_TRY(launch_gate_heads(
          {act.mixed, gate, stride, tokens, shape.heads, shape.head_dim}, stream_));
    }
    return add_product(w.out, act.mixed);
  }

  Status mlp(const DeviceLayer& layer) {
    const DecoderActivations& act = activations_;
    const int tokens = tables_->token_count();
    REPLAYSSM_TRY(normed_product(layer.mlp_norm_scale, layer.gate_up, act.gate_up));
    if (takes_matvec(layer.down, tokens)) {
      return launch_matvec(added_matvec(MatvecInput::silu_product, act.gate_up, layer.down),
                           stream_);
    }
    REPLAYSSM_TRY(launch_silu_product(
        {act.gate_up, act.activated, tokens, config_.intermediate_size}, stream_));
    return add_product(layer.down, act.activated);
  }

  // The final norm and the head, for the rows that were asked for only; then their best tokens.
  Status compute_logits() {
    const DecoderActivations& act = activations_;
    if (hidden_copies_.wants(kTapFinalNorm)) {
      REPLAYSSM_TRY(launch_rms_norm({act.hidden, nullptr, weights_.final_norm_scale, eps(),
                                     act.normed, tables_->token_count(), config_.hidden_size},
                                    stream_));
      REPLAYSSM_TRY(
          hidden_copies_.copy(kTapFinalNorm, act.normed, tables_->token_count(), stream_));
    }
    const int rows = tables_->logit_rows();
    if (rows == 0) return {};
    if (takes_matvec(weights_.head, rows)) {
      MatvecArgs args;
      args.from = act.hidden;
      args.rows = tables_->logit_tokens();
      args.scale = weights_.final_norm_scale;
      args.eps = eps();
      args.weight = weights_.head;
      args.out = act.logits;
      args.out_type = DType::f32;
      REPLAYSSM_TRY(launch_matvec(args, stream_));
    } else {
      REPLAYSSM_TRY(launch_rms_norm({act.hidden, tables_->logit_tokens(), weights_.final_norm_scale,
                                     eps(), act.normed, rows, config_.hidden_size},
                                    stream_));
      REPLAYSSM_TRY(gemm_->run(weights_.head, act.normed, rows, {act.logits, DType::f32}, stream_));
    }
    return launch_best_token(
        {act.logits, config_.vocab_rows, config_.vocab_size, rows, act.best_parts, act.best},
        stream_);
  }

  Status read_logits(std::span<float> logits) {
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(
        logits.data(), activations_.logits, logits.size_bytes(), cudaMemcpyDeviceToHost, stream_)));
    REPLAYSSM_TRY(wait_for(stream_));
    const auto stride = static_cast<std::size_t>(config_.vocab_rows);
    const auto known = static_cast<std::size_t>(config_.vocab_size);
    for (std::size_t at = 0; at < logits.size(); at += stride) {
      std::fill(logits.begin() + static_cast<std::ptrdiff_t>(at + known),
                logits.begin() + static_cast<std::ptrdiff_t>(at + stride),
                -std::numeric_limits<float>::infinity());
    }
    return {};
  }

  Status report(std::string_view name, const bf16* values, int width) {
    if (!observer_) return {};
    std::vector<bf16> read(static_cast<std::size_t>(tables_->token_count()) *
                           static_cast<std::size_t>(width));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(
        read.data(), values, read.size() * sizeof(bf16), cudaMemcpyDeviceToHost, stream_)));
    REPLAYSSM_TRY(wait_for(stream_));
    std::vector<float> widened(read.size());
    std::transform(read.begin(), read.end(), widened.begin(), [](bf16 x) { return to_float(x); });
    observer_(name, widened);
    return {};
  }

  float eps() const { return static_cast<float>(config_.rms_norm_eps); }

  ModelConfig config_;
  ModelOptions options_;
  CudaDecoderSizes sizes_;
  cudaStream_t stream_;
  Weights host_weights_;
  DeviceWeights weights_;
  DeviceLimits limits_;
  DeviceBuffer memory_;
  DecoderActivations activations_;
  DeviceBuffer frequencies_;
  DeviceRope rope_;
  std::optional<Gemm> gemm_;
  std::optional<StepTables> tables_;
  std::optional<TokenChoices> choices_;
  std::optional<PagedAttention> attention_;
  StepGraphs graphs_;
  HiddenCopies hidden_copies_;
  std::span<float> hidden_;  // where the hidden states of the launched step go
  std::unique_ptr<DraftHead> draft_head_;
  Batch padded_;  // of the newest step that was padded
  LayerObserver observer_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_cuda_decoder(const ModelConfig& config, Weights weights,
                                                 const ModelOptions& options,
                                                 const CudaDecoderSizes& sizes,
                                                 cudaStream_t stream) {
  if (options.activations != DType::bf16) {
    return refuse("--dtype", name_of(options.activations), "bfloat16 with --device cuda");
  }
  auto decoder = std::make_unique<CudaDecoder>(config, options, sizes, stream);
  REPLAYSSM_TRY(decoder->load(std::move(weights)));
  return std::unique_ptr<Model>(std::move(decoder));
}

}  // namespace replayssm::cuda
