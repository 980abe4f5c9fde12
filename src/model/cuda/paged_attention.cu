#include "model/cuda/paged_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/page.cuh>
#include <limits>
#include <vector>

#include "model/cuda/decoder_buffers.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/pinned_buffer.h"

namespace replayssm::cuda {
namespace {

namespace fi = flashinfer;
using Number = nv_bfloat16;
using Params = fi::BatchPrefillPagedParams<Number, Number, Number, int>;
using Variant = fi::DefaultAttention</*use_custom_mask=*/false, /*use_sliding_window=*/false,
                                     /*use_logits_soft_cap=*/false, /*use_alibi=*/false>;

// Queries of a block that sees all of its row's positions: the smallest tile, whose four warps
// share the positions, which a step of one token for each row needs most.
constexpr int kWholeRowTile = 16;

// As Variant, without the first position.
struct WithoutFirst : Variant {
  using Variant::Variant;
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx,
                            { return kv_idx == 0 ? T(-fi::math::inf) : logits; })
};

template <unsigned kHeadDim, unsigned kTile, class V = Variant>
cudaError_t run_tile(const Params& params, Number* partial, float* sums, cudaStream_t stream) {
  return fi::BatchPrefillWithPagedKVCacheDispatched<
      /*SAME_KV_STRIDES=*/true, kTile, kHeadDim, kHeadDim, fi::PosEncodingMode::kNone,
      /*USE_FP16_QK_REDUCTION=*/false, fi::MaskMode::kCausal, /*USE_TOKEN_HEAD_SF=*/false, V>(
      params, partial, sums, /*enable_pdl=*/true, stream);
}

template <unsigned kHeadDim>
cudaError_t run_head_dim(std::int64_t tile, int first_position, const Params& params,
                         Number* partial, float* sums, cudaStream_t stream) {
  if (first_position > 0) {
    return run_tile<kHeadDim, kWholeRowTile, WithoutFirst>(params, partial, sums, stream);
  }
  if (tile == 16) return run_tile<kHeadDim, 16>(params, partial, sums, stream);
  if (tile == 64) return run_tile<kHeadDim, 64>(params, partial, sums, stream);
  if constexpr (kHeadDim < 256) {
    if (tile == 128) return run_tile<kHeadDim, 128>(params, partial, sums, stream);
  }
  return cudaErrorInvalidValue;
}

template <class T>
T* mutable_pointer(const T* pointer) {
  return const_cast<T*>(pointer);
}

}  // namespace

struct PagedAttention::Implementation {
  AttentionShape shape;
  int page_tokens = 0;
  AttentionOrder order;
  DeviceBuffer floats;
  DeviceBuffer integers;
  // A plan's lists on the host, for one plan of two: the copy of one may be on its way when the
  // next is made.
  struct Lists {
    PinnedBuffer words;
    Event copied;
  };
  std::array<Lists, 2> lists;
  std::size_t newest = 0;
  fi::PrefillPlanInfo cut;

  bool whole_rows_are_faster(const AttentionRows& rows) const;
  Status plan_whole_rows(const AttentionRows& rows, cudaStream_t stream);
};

// A row's positions in one block take about as long as its pages; cut up they need a second launch,
// and FlashInfer's plan for graphs cuts finer than it has to. Whole rows were faster on an H200 up
// to 384 positions, and where the longest row takes one block less time than the memory takes for
// all rows (docs/adr/0012).
bool PagedAttention::Implementation::whole_rows_are_faster(const AttentionRows& rows) const {
  constexpr int kShort = 384;          // positions
  constexpr double kBlockRate = 48e9;  // bytes a second of one block
  constexpr double kMemoryRate = 4e12;
  int longest = 0;  // pages
  for (std::size_t r = 0; r + 1 < rows.page_start.size(); ++r) {
    if ((rows.query_start[r + 1] - rows.query_start[r]) * shape.group() > kWholeRowTile) {
      return false;
    }
    longest = std::max(longest, rows.page_start[r + 1] - rows.page_start[r]);
  }
  return longest * page_tokens <= kShort ||
         longest / kBlockRate <= 1.0 * shape.kv_heads * rows.page_start.back() / kMemoryRate;
}

// FlashInfer's lists for blocks of kWholeRowTile queries (those of all heads that share a kv head)
// that see all of their row's positions.
Status PagedAttention::Implementation::plan_whole_rows(const AttentionRows& rows,
                                                       cudaStream_t stream) {
  const int count = static_cast<int>(rows.query_start.size()) - 1;
  std::vector<int> request, tile;
  for (int r = 0; r < count; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const int queries = (rows.query_start[at + 1] - rows.query_start[at]) * shape.group();
    for (int first = 0; first < queries; first += kWholeRowTile) {
      request.push_back(r);
      tile.push_back(first / kWholeRowTile);
    }
  }
  const auto blocks = static_cast<int>(request.size());
  int* const words_of_plan = lists[newest].words.as<int>();
  int used = 0;
  const auto place = [&](std::int64_t& offset, std::span<const int> values) {
    offset = std::int64_t{used} * std::int64_t{sizeof(int)};
    std::copy(values.begin(), values.end(), words_of_plan + used);
    used += static_cast<int>(values.size());
  };
  const std::int64_t words = 3 * std::int64_t{blocks} + count + 2;
  if (words * std::int64_t{sizeof(int)} > kAttentionListBytes) {
    return refuse("attention: blocks of a step", blocks,
                  fmt::format("lists of at most {} bytes", kAttentionListBytes));
  }
  const int whole = std::numeric_limits<int>::max();
  cut = {};
  place(cut.request_indices_offset, request);
  place(cut.qo_tile_indices_offset, tile);
  place(cut.kv_tile_indices_offset, std::vector<int>(request.size(), 0));
  place(cut.o_indptr_offset, rows.query_start);
  place(cut.kv_chunk_size_ptr_offset, {&whole, 1});
  cut.padded_batch_size = blocks;
  cut.total_num_rows = rows.query_start.back();
  cut.cta_tile_q = kWholeRowTile;
  return REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(integers.as<void>(), words_of_plan,
                                               static_cast<std::size_t>(used) * sizeof(int),
                                               cudaMemcpyHostToDevice, stream));
}

PagedAttention::PagedAttention(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
PagedAttention::PagedAttention(PagedAttention&&) noexcept = default;
PagedAttention& PagedAttention::operator=(PagedAttention&&) noexcept = default;
PagedAttention::~PagedAttention() = default;

Result<PagedAttention> PagedAttention::make(const AttentionShape& shape, int page_tokens, int rows,
                                            const AttentionOrder& order) {
#ifdef REPLAYSSM_CUDA_ONE_INSTANCE
  const bool built = shape.head_dim == 256;
#else
  const bool built = shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256;
#endif
  if (!built) return refuse("head_dim", shape.head_dim, "64, 128 or 256 on cuda");
  auto made = std::make_unique<Implementation>();
  made->shape = shape;
  made->page_tokens = page_tokens;
  made->order = order;
  if (order.first_position < 0 || order.first_position > (order.fixed ? 1 : 0)) {
    return refuse("attention: first position", order.first_position, "0, or 1 in fixed order");
  }
  const std::int64_t partial_bytes = order.fixed ? 0 : attention_partial_bytes(shape, rows);
  auto floats = DeviceBuffer::make(static_cast<std::size_t>(partial_bytes));
  if (!floats) return floats.error();
  made->floats = std::move(*floats);
  auto integers = DeviceBuffer::make(kAttentionListBytes);
  if (!integers) return integers.error();
  made->integers = std::move(*integers);
  for (Implementation::Lists& lists : made->lists) {
    auto words = PinnedBuffer::make(static_cast<std::size_t>(kAttentionListBytes));
    if (!words) return words.error();
    lists.words = std::move(*words);
    auto event = Event::make();
    if (!event) return event.error();
    lists.copied = std::move(*event);
  }
  return PagedAttention(std::move(made));
}

namespace {

// The number of queries of every row, where it is the same; otherwise 0.
int uniform_queries(std::span<const int> query_start) {
  const int first = query_start[1] - query_start[0];
  for (std::size_t r = 1; r + 1 < query_start.size(); ++r) {
    if (query_start[r + 1] - query_start[r] != first) return 0;
  }
  return first;
}

}  // namespace

Status PagedAttention::plan(const AttentionRows& rows, bool graph, cudaStream_t stream) {
  Implementation& my = *implementation_;
  my.newest = 1 - my.newest;
  const Implementation::Lists& lists = my.lists[my.newest];
  REPLAYSSM_TRY(lists.copied.wait());
  const auto count = static_cast<unsigned>(rows.query_start.size() - 1);
  const int uniform = graph ? uniform_queries(rows.query_start) : 0;
  if (my.order.fixed || my.whole_rows_are_faster(rows)) {
    REPLAYSSM_TRY(my.plan_whole_rows(rows, stream));
    return lists.copied.record(stream);
  }
  // Its checks throw.
  try {
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(fi::PrefillPlan<int>(
        my.floats.as<void>(), my.floats.bytes(), my.integers.as<void>(), lists.words.as<void>(),
        my.integers.bytes(), my.cut, mutable_pointer(rows.query_start.data()),
        mutable_pointer(rows.page_start.data()), static_cast<unsigned>(rows.query_start.back()),
        count, static_cast<unsigned>(my.shape.heads), static_cast<unsigned>(my.shape.kv_heads),
        static_cast<unsigned>(my.shape.head_dim), static_cast<unsigned>(my.shape.head_dim),
        static_cast<unsigned>(my.page_tokens), graph, sizeof(Number), /*window_left=*/-1,
        /*fixed_split_size=*/-1, /*disable_split_kv=*/false, /*num_colocated_ctas=*/0, uniform,
        /*fixed_uniform_q_len=*/uniform > 0, stream)));
    return lists.copied.record(stream);
  } catch (const std::exception& error) {
    return Error{fmt::format("attention of {} rows, {} tokens: {}", count, rows.query_start.back(),
                             error.what())};
  }
}

std::int64_t PagedAttention::cut_shape() const {
  const fi::PrefillPlanInfo& cut = implementation_->cut;
  return (cut.padded_batch_size * 1024 + cut.cta_tile_q) * 4 + (cut.enable_cuda_graph ? 2 : 0) +
         (cut.split_kv ? 1 : 0);
}

Status PagedAttention::run(const AttentionRows& rows, const bf16* q, const bf16* keys,
                           const bf16* values, bf16* out, cudaStream_t stream) {
  Implementation& my = *implementation_;
  const fi::PrefillPlanInfo& cut = my.cut;
  const auto numbers = [](const bf16* from) {
    return reinterpret_cast<Number*>(const_cast<bf16*>(from));
  };
  const auto integers = [&]<class T>(std::int64_t offset, T*& to) {
    to = fi::GetPtrFromBaseOffset<T>(my.integers.as<void>(), offset);
  };
  Params params;
  params.q = numbers(q);
  params.paged_kv = fi::paged_kv_t<Number, int>(
      static_cast<unsigned>(my.shape.kv_heads), static_cast<unsigned>(my.page_tokens),
      static_cast<unsigned>(my.shape.head_dim), static_cast<unsigned>(rows.query_start.size() - 1),
      fi::QKVLayout::kNHD, numbers(keys), numbers(values), mutable_pointer(rows.pages),
      mutable_pointer(rows.device_page_start), mutable_pointer(rows.last_page_tokens));
  params.q_indptr = mutable_pointer(rows.device_query_start);
  params.o = numbers(out);
  params.group_size = fi::uint_fastdiv(static_cast<unsigned>(my.shape.group()));
  params.num_qo_heads = static_cast<unsigned>(my.shape.heads);
  params.q_stride_n = my.shape.heads * my.shape.head_dim;
  params.q_stride_h = my.shape.head_dim;
  params.window_left = -1;
  params.sm_scale = 1.0f / std::sqrt(static_cast<float>(my.shape.head_dim));
  integers(cut.request_indices_offset, params.request_indices);
  integers(cut.qo_tile_indices_offset, params.qo_tile_indices);
  integers(cut.kv_tile_indices_offset, params.kv_tile_indices);
  integers(cut.o_indptr_offset, params.o_indptr);
  integers(cut.kv_chunk_size_ptr_offset, params.kv_chunk_size_ptr);
  Number* partial = nullptr;
  float* sums = nullptr;
  if (cut.split_kv) {
    integers(cut.merge_indptr_offset, params.merge_indptr);
    partial = fi::GetPtrFromBaseOffset<Number>(my.floats.as<void>(), cut.v_offset);
    sums = fi::GetPtrFromBaseOffset<float>(my.floats.as<void>(), cut.s_offset);
  }
  params.partition_kv = cut.split_kv;
  params.padded_batch_size = static_cast<unsigned>(cut.padded_batch_size);
  params.max_total_num_rows = static_cast<unsigned>(cut.total_num_rows);
  if (cut.enable_cuda_graph) {
    integers(cut.block_valid_mask_offset, params.block_valid_mask);
    integers(cut.total_num_rows_offset, params.total_num_rows);
  }
  try {
    switch (my.shape.head_dim) {
#ifndef REPLAYSSM_CUDA_ONE_INSTANCE
      case 64:
        return REPLAYSSM_CUDA_STATUS(run_head_dim<64>(cut.cta_tile_q, my.order.first_position,
                                                      params, partial, sums, stream));
      case 128:
        return REPLAYSSM_CUDA_STATUS(run_head_dim<128>(cut.cta_tile_q, my.order.first_position,
                                                       params, partial, sums, stream));
#endif
      case 256:
        return REPLAYSSM_CUDA_STATUS(run_head_dim<256>(cut.cta_tile_q, my.order.first_position,
                                                       params, partial, sums, stream));
      default:
        return refuse("head_dim", my.shape.head_dim, "64, 128 or 256 on cuda");
    }
  } catch (const std::exception& error) {
    return Error{fmt::format("attention: {}", error.what())};
  }
}

}  // namespace replayssm::cuda
