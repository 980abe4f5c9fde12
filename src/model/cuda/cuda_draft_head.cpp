#include "model/cuda/cuda_draft_head.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "model/batch_check.h"
#include "model/cuda/decoder_kernels.h"
#include "model/cuda/draft_kernels.h"
#include "model/cuda/paged_attention.h"
#include "model/cuda/step_tables.h"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

class CudaDraftHead final : public DraftHead {
 public:
  CudaDraftHead(const DraftHeadParts& parts, cudaStream_t stream)
      : my_(parts),
        stream_(stream),
        width_(parts.config->hidden_size),
        eps_(static_cast<float>(parts.config->rms_norm_eps)) {}

  Status prepare() {
    auto memory = DeviceBuffer::make(
        static_cast<std::size_t>(draft_head_bytes(*my_.config, my_.options->max_step_tokens)));
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    carve_draft_head(*my_.config, my_.options->max_step_tokens, memory_.as<std::byte>(), own_);
    auto tables = StepTables::make(my_.sizes);
    if (!tables) return tables.error();
    tables_.emplace(std::move(*tables));
    AttentionOrder order;
    order.fixed = true;
    order.first_position = 1;
    auto attention = PagedAttention::make(my_.config->attention, my_.page_tokens, 0, order);
    if (!attention) return attention.error();
    attention_.emplace(std::move(*attention));
    return {};
  }

  Status draft(std::span<const TokenId> tokens, std::span<const DraftRow> rows, const KvView& kv,
               std::span<float> hidden, std::span<float> logits) override {
    const std::size_t stride = static_cast<std::size_t>(my_.config->vocab_rows);
    const std::size_t wanted = wanted_rows(rows) * stride;
    if (logits.size() != wanted) {
      return refuse("draft: elements of logits", logits.size(), fmt::format("{}", wanted));
    }
    REPLAYSSM_TRY(evaluate(tokens, rows, kv, hidden));
    REPLAYSSM_TRY(copy_to_host(logits.data(), my_.activations->logits, logits.size_bytes()));
    REPLAYSSM_TRY(finish(hidden));
    const auto known = static_cast<std::ptrdiff_t>(my_.config->vocab_size);
    for (auto row = logits.begin(); row != logits.end();
         row += static_cast<std::ptrdiff_t>(stride)) {
      std::fill(row + known, row + static_cast<std::ptrdiff_t>(stride),
                -std::numeric_limits<float>::infinity());
    }
    return {};
  }

  bool picks_best() const override { return true; }

  Status draft_best(std::span<const TokenId> tokens, std::span<const DraftRow> rows,
                    const KvView& kv, std::span<float> hidden, std::span<TokenId> best) override {
    if (best.size() != wanted_rows(rows)) {
      return refuse("draft: best tokens", best.size(), fmt::format("{}", wanted_rows(rows)));
    }
    REPLAYSSM_TRY(evaluate(tokens, rows, kv, hidden));
    static_assert(sizeof(TokenId) == sizeof(int));
    REPLAYSSM_TRY(copy_to_host(best.data(), my_.activations->best, best.size_bytes()));
    return finish(hidden);
  }

 private:
  Status copy_to_host(void* to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return {};
    return REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
  }

  // Everything but the copies to the host.
  Status evaluate(std::span<const TokenId> tokens, std::span<const DraftRow> rows, const KvView& kv,
                  std::span<const float> hidden) {
    const Status started = start(tokens, rows, kv, hidden);
    // What a failed call has queued still reads the tables that the next one writes.
    if (!started) static_cast<void>(wait_for(stream_));
    return started;
  }

  Status start(std::span<const TokenId> tokens, std::span<const DraftRow> rows, const KvView& kv,
               std::span<const float> hidden) {
    REPLAYSSM_TRY(check_draft(tokens, rows, kv, hidden.size(), *my_.config, *my_.options));
    if (tokens.empty()) return {};
    Batch batch;
    batch.tokens.assign(tokens.begin(), tokens.end());
    for (const DraftRow& row : rows) {
      BatchRow& made = batch.rows.emplace_back();
      made.span = {RowIndex{0}, row.first_token, row.tokens, Phase::decode};
      made.start = row.start;
      made.pages = row.pages;
      made.logits = row.logits ? 1 : 0;
    }
    REPLAYSSM_TRY(tables_->write(batch, my_.page_tokens, stream_));
    REPLAYSSM_TRY(attention_->plan(tables_->attention(), false, stream_));
    rounded_.resize(hidden.size());
    std::transform(hidden.begin(), hidden.end(), rounded_.begin(),
                   [](float x) { return to_bf16(x); });
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(own_.given, rounded_.data(),
                                                        rounded_.size() * sizeof(bf16),
                                                        cudaMemcpyHostToDevice, stream_)));
    return launch(kv);
  }

  // The head's output of every token, once the step is done.
  Status finish(std::span<float> hidden) {
    if (hidden.empty()) return {};
    REPLAYSSM_TRY(copy_to_host(rounded_.data(), own_.given, rounded_.size() * sizeof(bf16)));
    REPLAYSSM_TRY(wait_for(stream_));
    std::transform(rounded_.begin(), rounded_.end(), hidden.begin(),
                   [](bf16 x) { return to_float(x); });
    return {};
  }

  Status norm(const bf16* x, const float* scale, bf16* out, int count, const int* rows = nullptr) {
    return launch_rms_norm({x, rows, scale, eps_, out, count, width_}, stream_);
  }

  // out (+)= W x. Padded, so that few shapes come up, however many tokens are committed.
  Status product(const DeviceMatrix& weight, const bf16* x, int tokens, const ProductOutput& out) {
    return my_.gemm->run(weight, x, padded_tokens(tokens), out, stream_);
  }

  Status launch(const KvView& kv) {
    const DecoderActivations& act = *my_.activations;
    const AttentionShape& shape = my_.config->attention;
    const AttentionRows& rows = tables_->attention();
    const int tokens = tables_->token_count();
    const DeviceMtp& w = *my_.weights;
    const auto& mixer = std::get<DeviceAttention>(w.layer.mixer);
    REPLAYSSM_TRY(launch_clear_first(
        {rows.device_page_start, rows.pages, static_cast<bf16*>(kv.keys),
         static_cast<bf16*>(kv.values), static_cast<int>(rows.query_start.size()) - 1,
         my_.page_tokens, shape.kv_heads * shape.head_dim},
        stream_));
    REPLAYSSM_TRY(launch_join({tables_->tokens(), my_.embedding.data, w.embedding_norm_scale,
                               own_.given, w.hidden_norm_scale, eps_, own_.joined, tokens, width_},
                              stream_));
    REPLAYSSM_TRY(product(w.fc, own_.joined, tokens, {act.hidden}));

    REPLAYSSM_TRY(norm(act.hidden, w.layer.mixer_norm_scale, act.normed, tokens));
    REPLAYSSM_TRY(product(mixer.in, act.normed, tokens, {act.attention_in}));
    REPLAYSSM_TRY(attend(mixer, kv));
    REPLAYSSM_TRY(product(mixer.out, act.mixed, tokens, {act.hidden, DType::bf16, true}));

    REPLAYSSM_TRY(norm(act.hidden, w.layer.mlp_norm_scale, act.normed, tokens));
    REPLAYSSM_TRY(product(w.layer.gate_up, act.normed, tokens, {act.gate_up}));
    REPLAYSSM_TRY(launch_silu_product(
        {act.gate_up, act.activated, tokens, my_.config->intermediate_size}, stream_));
    REPLAYSSM_TRY(product(w.layer.down, act.activated, tokens, {act.hidden, DType::bf16, true}));

    REPLAYSSM_TRY(norm(act.hidden, w.norm_scale, own_.given, tokens));
    const int wanted = tables_->logit_rows();
    if (wanted == 0) return {};
    REPLAYSSM_TRY(norm(act.hidden, w.norm_scale, act.normed, wanted, tables_->logit_tokens()));
    REPLAYSSM_TRY(product(my_.head, act.normed, wanted, {act.logits, DType::f32}));
    return launch_best_token({act.logits, my_.config->vocab_rows, my_.config->vocab_size, wanted,
                              act.best_parts, act.best},
                             stream_);
  }

  // act.mixed, gated, from act.attention_in.
  Status attend(const DeviceAttention& w, const KvView& kv) {
    const DecoderActivations& act = *my_.activations;
    const AttentionShape& shape = my_.config->attention;
    const int tokens = tables_->token_count();
    const HeadArgs heads = head_args(*my_.config, w, act, *tables_, kv, my_.rope);
    REPLAYSSM_TRY(launch_place_heads(heads, stream_));
    REPLAYSSM_TRY(attention_->run(tables_->attention(), act.queries, heads.keys, heads.values,
                                  act.mixed, stream_));
    if (!shape.output_gate) return {};
    return launch_gate_heads({act.mixed, act.attention_in + shape.head_dim, w.in.rows, tokens,
                              shape.heads, shape.head_dim},
                             stream_);
  }

  DraftHeadParts my_;
  cudaStream_t stream_;
  int width_;
  float eps_;
  DeviceBuffer memory_;
  DraftHeadBuffers own_;
  std::optional<StepTables> tables_;
  std::optional<PagedAttention> attention_;
  std::vector<bf16> rounded_;  // hidden states on their way
};

}  // namespace

Result<std::unique_ptr<DraftHead>> make_cuda_draft_head(const DraftHeadParts& parts,
                                                        cudaStream_t stream) {
  auto head = std::make_unique<CudaDraftHead>(parts, stream);
  REPLAYSSM_TRY(head->prepare());
  return std::unique_ptr<DraftHead>(std::move(head));
}

}  // namespace replayssm::cuda
