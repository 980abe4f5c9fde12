#include "model/cuda/decoder_kernels.h"

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "model/cuda/best_token.cuh"
#include "model/cuda/decoder_math.cuh"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/overlapped_launch.h"
#include "ops/shape.h"

namespace replayssm::cuda {
namespace {

// What the launch before has written is there; the next one may be scheduled.
__device__ __forceinline__ void enter_after_previous() {
  ptx::wait_for_previous_launch();
  ptx::allow_next_launch();
}

__global__ void embed_kernel(const __grid_constant__ EmbedArgs args) {
  int token = args.tokens[blockIdx.x];
  if (token < -1) token = args.chosen[-2 - token];  // token_chosen_in()
  bf16* const out = args.out + static_cast<int64_t>(blockIdx.x) * args.width;
  for (int i = static_cast<int>(threadIdx.x) * kOctet; i < args.width;
       i += static_cast<int>(blockDim.x) * kOctet) {
    *reinterpret_cast<uint4*>(out + i) =
        token < 0 ? uint4{0, 0, 0, 0}
                  : *reinterpret_cast<const uint4*>(args.table +
                                                    static_cast<int64_t>(token) * args.width + i);
  }
}

// One block a row.
__global__ void rms_norm_kernel(const __grid_constant__ NormArgs args) {
  enter_after_previous();
  const int64_t row = args.rows == nullptr ? blockIdx.x : args.rows[blockIdx.x];
  rms_norm_row(args.x + row * args.width, args.scale, args.eps, args.width,
               args.out + static_cast<int64_t>(blockIdx.x) * args.width);
}

// Half a warp a value head: eight values a lane.
__global__ void gated_norm_kernel(const __grid_constant__ GatedNormArgs args) {
  enter_after_previous();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kOctet;
  const int64_t width = static_cast<int64_t>(args.value_heads) * kValueDim;
  if (at >= args.tokens * width) return;  // whole heads
  const bf16* const gate = args.gate + at / width * args.gate_stride + at % width;
  store_octet(args.out + at, gated_norm(load_octet(args.x + at), load_octet(gate),
                                        args.scale + at % kValueDim, args.eps));
}

// One warp a head, eight dimensions a lane: the norm of `x`, then the rotation.
__device__ __forceinline__ Octet place_head(const HeadArgs& args, const bf16* x, const float* scale,
                                            int position) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column = lane * kOctet;
  const bool inside = column < args.head_dim;
  Octet v = inside ? load_octet(x + column) : Octet{};
  const float mean = warp_sum(sum_of_squares(v)) / static_cast<float>(args.head_dim);
  const float inverse = 1.0f / sqrtf(mean + args.eps);
  const int half = args.pairs / kOctet;  // lanes of the first halves of the pairs
  const bool second = lane >= half;
  const bool rotated = lane < 2 * half;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const float mine = inside ? rounded(v.x[i] * inverse * scale[column + i]) : 0.0f;
    const float other = __shfl_sync(0xffffffffu, mine, second ? lane - half : lane + half);
    v.x[i] = mine;
    if (!rotated) continue;
    const float angle =
        static_cast<float>(position) * args.frequencies[column + i - (second ? args.pairs : 0)];
    const float cosine = rounded(cosf(angle) * args.attention_factor);
    const float sine = rounded(sinf(angle) * args.attention_factor);
    const float turned = rounded(other * sine);
    v.x[i] = second ? rounded(mine * cosine) + turned : rounded(mine * cosine) - turned;
  }
  return v;
}

// Warps of a token: its query heads, its keys, its values.
__global__ void place_heads_kernel(const __grid_constant__ HeadArgs args) {
  enter_after_previous();
  const int warp = static_cast<int>(blockIdx.y * (blockDim.x / kWarp) + threadIdx.x / kWarp);
  if (warp >= args.heads + 2 * args.kv_heads) return;
  const int64_t token = blockIdx.x;
  const int column = static_cast<int>(threadIdx.x) % kWarp * kOctet;
  const bf16* const projected = args.projected + token * args.stride;
  const int position = args.positions[token];
  if (warp < args.heads) {
    const Octet q = place_head(args, projected + warp * args.query_width, args.q_scale, position);
    if (column < args.head_dim) {
      store_octet(args.queries + (token * args.heads + warp) * args.head_dim + column, q);
    }
    return;
  }
  const int place = args.places[token];
  if (place < 0) return;
  const bool is_key = warp < args.heads + args.kv_heads;
  const int head = warp - args.heads - (is_key ? 0 : args.kv_heads);
  const bf16* const source = projected + args.heads * args.query_width +
                             ((is_key ? 0 : args.kv_heads) + head) * args.head_dim;
  const int64_t to = (static_cast<int64_t>(place) * args.kv_heads + head) * args.head_dim + column;
  if (is_key) {
    const Octet k = place_head(args, source, args.k_scale, position);
    if (column < args.head_dim) store_octet(args.keys + to, k);
  } else if (column < args.head_dim) {
    *reinterpret_cast<uint4*>(args.values + to) = *reinterpret_cast<const uint4*>(source + column);
  }
}

__global__ void gate_heads_kernel(const __grid_constant__ GateHeadsArgs args) {
  enter_after_previous();
  const int width = args.heads * args.head_dim;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kOctet;
  if (i >= static_cast<int64_t>(args.tokens) * width) return;
  const int64_t token = i / width;
  const int in_token = static_cast<int>(i % width);
  const int head = in_token / args.head_dim;
  const bf16* const gate = args.gate + token * args.gate_stride + head * args.head_dim + in_token;
  store_octet(args.x + i, sigmoid_product(load_octet(args.x + i), load_octet(gate)));
}

__global__ void silu_product_kernel(const __grid_constant__ SiluProductArgs args) {
  enter_after_previous();
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kOctet;
  if (i >= static_cast<int64_t>(args.tokens) * args.width) return;
  const int64_t token = i / args.width;
  const bf16* const gate = args.gate_up + token * args.width + i;  // rows of 2 width
  store_octet(args.out + i, silu_product(load_octet(gate), load_octet(gate + args.width)));
}

__global__ void random_kernel(const __grid_constant__ RandomArgs args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count;
       i += step) {
    const auto draw = static_cast<int16_t>(mixed(args.seed + static_cast<uint64_t>(i)) & 0xffff);
    args.to[i] = narrow<bf16>(static_cast<float>(draw) * (args.half_width / 32768.0f));
  }
}

__global__ void best_of_part_kernel(const __grid_constant__ BestTokenArgs args) {
  __shared__ BestToken warps[kBestWarps];
  enter_after_previous();
  const float* const logits = args.logits + static_cast<int64_t>(blockIdx.y) * args.stride;
  const int thread = static_cast<int>(threadIdx.x);
  const int width = (args.vocabulary + kBestParts - 1) / kBestParts;
  const int first = static_cast<int>(blockIdx.x) * width;
  const int end = min(first + width, args.vocabulary);
  BestToken best{-INFINITY, kNoToken};
  bool broken = false;
#pragma unroll 8
  for (int i = first + thread; i < end; i += kBestThreads) {
    const float logit = logits[i];
    broken = broken || !isfinite(logit);
    if (logit > best.logit) best = {logit, i};
  }
  best = best_of_block({best.logit, broken ? kBroken : best.token}, warps);
  if (thread == 0) args.parts[blockIdx.y * kBestParts + blockIdx.x] = best;
}

// One warp a row.
__global__ void best_of_row_kernel(const __grid_constant__ BestTokenArgs args) {
  static_assert(kBestParts == kWarp);
  enter_after_previous();
  const int row = static_cast<int>(blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp);
  if (row >= args.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const BestToken best = best_of_warp(args.parts[row * kBestParts + lane]);
  if (lane == 0) args.best[row] = max(best.token, -1);
}

// Blocks of `threads` for `count` threads' work.
unsigned blocks_for(int64_t count, int threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

// Threads of a block that has a row of `width` to itself.
unsigned row_threads(int width) {
  const int octets = (width + kOctet - 1) / kOctet;
  const int threads = (octets + kWarp - 1) / kWarp * kWarp;
  return static_cast<unsigned>(threads < 512 ? threads : 512);
}

}  // namespace

Status launch_embed(const EmbedArgs& args, cudaStream_t stream) {
  if (args.count == 0) return {};
  embed_kernel<<<static_cast<unsigned>(args.count), row_threads(args.width), 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

Status launch_rms_norm(const NormArgs& args, cudaStream_t stream) {
  if (args.count == 0) return {};
  return launch_overlapped(
      rms_norm_kernel, {static_cast<unsigned>(args.count), row_threads(args.width)}, stream, args);
}

Status launch_gated_norm(const GatedNormArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return {};
  const int threads = 128;
  const int64_t count = static_cast<int64_t>(args.tokens) * args.value_heads * kValueDim / kOctet;
  return launch_overlapped(gated_norm_kernel, {blocks_for(count, threads), threads}, stream, args);
}

Status launch_place_heads(const HeadArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return {};
  const int threads = 128;
  const dim3 grid(static_cast<unsigned>(args.tokens),
                  blocks_for((args.heads + 2 * args.kv_heads) * int64_t{kWarp}, threads));
  return launch_overlapped(place_heads_kernel, {grid, threads}, stream, args);
}

Status launch_gate_heads(const GateHeadsArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return {};
  const int threads = 128;
  const int64_t count = static_cast<int64_t>(args.tokens) * args.heads * args.head_dim / kOctet;
  return launch_overlapped(gate_heads_kernel, {blocks_for(count, threads), threads}, stream, args);
}

Status launch_silu_product(const SiluProductArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return {};
  const int threads = 128;
  const int64_t count = static_cast<int64_t>(args.tokens) * args.width / kOctet;
  return launch_overlapped(silu_product_kernel, {blocks_for(count, threads), threads}, stream,
                           args);
}

Status launch_random(const RandomArgs& args, cudaStream_t stream) {
  if (args.count == 0) return {};
  random_kernel<<<1024, 256, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

Status launch_best_token(const BestTokenArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return {};
  const dim3 parts(kBestParts, static_cast<unsigned>(args.rows));
  REPLAYSSM_TRY(launch_overlapped(best_of_part_kernel, {parts, kBestThreads}, stream, args));
  const unsigned threads = 128;
  return launch_overlapped(
      best_of_row_kernel, {blocks_for(args.rows * int64_t{kWarp}, threads), threads}, stream, args);
}

}  // namespace replayssm::cuda
