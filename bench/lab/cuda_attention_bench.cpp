// Times a layer's attention over pages on a GPU, as a decode step runs it (FlashInfer's kernels,
// the plan that a step takes; then in the order of --deterministic). Pages are shuffled and rotated
// beyond the L2 cache; a graph of launches, the median of nine replays. tools/reference_attention
// times cuDNN's for the same rows.
//   cuda_attention_bench
// One JSON object a line: heads and key heads of the 4 B and the 27 B shape, rows, context, us a
// layer, and the floor: bytes of keys and values over 4.18 TB/s.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "cuda_layer_set.h"
#include "model/cuda/decoder_kernels.h"
#include "model/cuda/paged_attention.h"
#include "ops/cuda/cuda_check.h"

namespace replayssm::bench {
namespace {

using cuda::DeviceBuffer;

constexpr std::size_t kBeyondCache = std::size_t{240} << 20;
constexpr int kPageTokens = 16;
constexpr double kBytesPerUs = 4.18e6;

Result<double> time_attention(const AttentionShape& shape, int rows, int context, bool fixed,
                              cudaStream_t stream) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const int row_pages = (context + kPageTokens - 1) / kPageTokens;
  const std::size_t page_numbers = at(kPageTokens) * at(shape.kv_heads) * at(shape.head_dim);
  const std::size_t copy_bytes = 2 * at(rows) * at(row_pages) * page_numbers * sizeof(bf16);
  const int copies = static_cast<int>(kBeyondCache / copy_bytes) + 2;
  const int pages = copies * rows * row_pages;
  const std::size_t queries = at(rows) * at(shape.heads) * at(shape.head_dim);

  std::vector<int> order(at(pages));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  std::vector<int> query_start(at(rows + 1)), page_start(at(rows + 1));
  for (int r = 0; r <= rows; ++r) {
    query_start[at(r)] = r;
    page_start[at(r)] = r * row_pages;
  }
  const std::vector<int> last(at(rows), context - (row_pages - 1) * kPageTokens);

  DeviceBuffer keys, values, q, out;
  for (DeviceBuffer* buffer : {&keys, &values, &q, &out}) {
    const bool cached = buffer == &keys || buffer == &values;
    const std::size_t numbers = cached ? at(pages) * page_numbers : queries;
    auto made = DeviceBuffer::make(numbers * sizeof(bf16));
    if (!made) return made.error();
    *buffer = std::move(*made);
    REPLAYSSM_TRY(cuda::launch_random(
        {buffer->as<bf16>(), static_cast<std::int64_t>(numbers), 1.0f, numbers}, stream));
  }
  DeviceBuffer device_order, device_query_start, device_page_start, device_last;
  const auto upload = [](DeviceBuffer& to, const std::vector<int>& from) -> Status {
    auto made = DeviceBuffer::copy_of(from.data(), from.size() * sizeof(int));
    if (!made) return made.error();
    to = std::move(*made);
    return {};
  };
  REPLAYSSM_TRY(upload(device_order, order));
  REPLAYSSM_TRY(upload(device_query_start, query_start));
  REPLAYSSM_TRY(upload(device_page_start, page_start));
  REPLAYSSM_TRY(upload(device_last, last));

  auto attention = cuda::PagedAttention::make(shape, kPageTokens, rows, {fixed});
  if (!attention) return attention.error();
  cuda::AttentionRows part;
  part.query_start = query_start;
  part.page_start = page_start;
  part.device_query_start = device_query_start.as<int>();
  part.device_page_start = device_page_start.as<int>();
  part.last_page_tokens = device_last.as<int>();
  REPLAYSSM_TRY(attention->plan(part, true, stream));
  return time_launches(stream, std::max(copies, 12), [&](int i) {
    part.pages = device_order.as<int>() + i % copies * rows * row_pages;
    return attention->run(part, q.as<bf16>(), keys.as<bf16>(), values.as<bf16>(), out.as<bf16>(),
                          stream);
  });
}

Status run() {
  auto stream = cuda::Stream::make();
  if (!stream) return stream.error();
  for (const int heads : {16, 24}) {
    AttentionShape shape;
    shape.heads = heads;
    shape.kv_heads = 4;
    shape.head_dim = 256;
    for (const int context : {256, 1024, 4096}) {
      for (const int rows : {1, 8, 32, 128}) {
        for (const bool fixed : {false, true}) {
          const auto us = time_attention(shape, rows, context, fixed, *stream);
          if (!us) return us.error();
          const double bytes =
              2.0 * rows * context * shape.kv_heads * shape.head_dim * sizeof(bf16);
          std::printf(
              "{\"attention\":\"flashinfer%s\",\"heads\":%d,\"kv_heads\":%d,\"rows\":%d,"
              "\"context\":%d,\"us\":%.2f,\"floor_us\":%.2f}\n",
              fixed ? ", fixed order" : "", heads, shape.kv_heads, rows, context, *us,
              bytes / kBytesPerUs);
          std::fflush(stdout);
        }
      }
    }
  }
  return {};
}

}  // namespace
}  // namespace replayssm::bench

int main() {
  const replayssm::Status status = replayssm::bench::run();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
