#include "model/cuda/token_choice_kernels.h"

#include <cuda_runtime.h>

#include "model/cuda/best_token.cuh"
#include "model/cuda/token_choice.cuh"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

constexpr int kCountThreads = 512;
constexpr int kDrawThreads = 1024;
constexpr int kChangeThreads = 256;

struct BlockTeam {
  template <class Use>
  __device__ __forceinline__ void each(int begin, int end, const Use& use) const {
    for (int i = begin + static_cast<int>(threadIdx.x); i < end;
         i += static_cast<int>(blockDim.x)) {
      use(i);
    }
  }
  // Several loads are under way at a time.
  template <class Use>
  __device__ __forceinline__ void each_logit(const float* logits, int begin, int end,
                                             const Use& use) const {
    constexpr int kAhead = 8;
    const int threads = static_cast<int>(blockDim.x);
    for (int first = begin + static_cast<int>(threadIdx.x); first < end;
         first += kAhead * threads) {
      float logit[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = first + i * threads;
        logit[i] = at < end ? logits[at] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = first + i * threads;
        if (at < end) use(at, logit[i]);
      }
    }
  }
  __device__ __forceinline__ void meet() const { __syncthreads(); }
  __device__ __forceinline__ bool first() const { return threadIdx.x == 0; }
  __device__ __forceinline__ void add(std::uint32_t& to, std::uint32_t more) const {
    atomicAdd(&to, more);
  }
  __device__ __forceinline__ void add(std::uint64_t& to, std::uint64_t more) const {
    static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(&to), more);
  }
  __device__ __forceinline__ std::uint32_t next(std::uint32_t& count) const {
    return atomicAdd(&count, 1u);
  }
};

__device__ __forceinline__ bool changes(const RowChoice& choice) {
  return choice.change_count > 0 || choice.mask != nullptr;
}

// Whether the row has anything to do in the pass for log-probabilities, or in that for the draw.
__device__ __forceinline__ bool takes_part(const TokenChoiceArgs& args, int row, bool logprobs) {
  const RowChoice& choice = args.choices[row];
  if (args.chosen[row] < 0) return false;
  return logprobs ? choice.top_logprobs >= 0 : choice.draws != 0;
}

// `powers`: of the block's memory.
__device__ __forceinline__ ChoiceRow row_of(const TokenChoiceArgs& args, int row, bool logprobs,
                                            const double* powers) {
  const RowChoice& choice = args.choices[row];
  const float* const logits = args.logits + row * args.stride;
  ChoiceRow r(logits, args.vocabulary, logits[args.chosen[row]],
              logprobs ? 1.0 : choice.temperature, powers);
  r.by_logit = logprobs || choice.by_logit != 0;
  if (logprobs) return r;
  r.mask = choice.mask;
  r.least = r.by_logit ? 0.0 : choice.min_p * r.unit();
  return r;
}

// The part of a row that is one block's of several.
struct Part {
  int begin, end;
};
__device__ __forceinline__ Part part_of(int vocabulary) {
  const int parts = static_cast<int>(gridDim.x);
  const int width = (vocabulary + parts - 1) / parts;
  const int begin = static_cast<int>(blockIdx.x) * width;
  return {min(begin, vocabulary), min(begin + width, vocabulary)};
}

__global__ void change_kernel(const __grid_constant__ TokenChoiceArgs args) {
  const int row = static_cast<int>(blockIdx.x);
  const RowChoice& choice = args.choices[row];
  BlockTeam().each(0, choice.change_count, [&](int i) {
    LogitChange& change = choice.changes[i];
    float& logit = args.logits[row * args.stride + change.token];
    change.before = logit;
    logit = changed_logit(choice, change, logit);
  });
}

// As launch_best_token(), for the rows whose logits have changed or are not all allowed.
__global__ void best_allowed_of_part_kernel(const __grid_constant__ TokenChoiceArgs args) {
  __shared__ BestToken warps[kBestWarps];
  const int row = static_cast<int>(blockIdx.y);
  const RowChoice& choice = args.choices[row];
  if (!changes(choice) || args.chosen[row] < 0) return;
  const float* const logits = args.logits + row * args.stride;
  const int width = (args.vocabulary + kBestParts - 1) / kBestParts;
  const int first = static_cast<int>(blockIdx.x) * width;
  BestToken best{-INFINITY, kNoToken};
  bool broken = false;
  BlockTeam().each(first, min(first + width, args.vocabulary), [&](int i) {
    const float logit = logits[i];
    broken = broken || !isfinite(logit);
    const bool allowed = choice.mask == nullptr || ((choice.mask[i / 32] >> (i % 32)) & 1u) != 0;
    if (allowed && logit > best.logit) best = {logit, i};
  });
  best = best_of_block({best.logit, broken ? kBroken : best.token}, warps);
  if (threadIdx.x == 0) args.best_parts[row * kBestParts + static_cast<int>(blockIdx.x)] = best;
}

// One warp a row.
__global__ void best_allowed_of_row_kernel(const __grid_constant__ TokenChoiceArgs args) {
  static_assert(kBestParts == kWarp);
  const int row = static_cast<int>(blockIdx.x);
  if (!changes(args.choices[row]) || args.chosen[row] < 0) return;
  const BestToken best = best_of_warp(args.best_parts[row * kBestParts + threadIdx.x]);
  if (threadIdx.x == 0) {
    args.chosen[row] = best.token == kBroken    ? kNotFinite
                       : best.token == kNoToken ? kNothingAllowed
                                                : best.token;
  }
}

// Several blocks a row that goes by logits.
__global__ void count_kernel(const __grid_constant__ TokenChoiceArgs args, bool logprobs) {
  __shared__ ChoiceBins bins;
  __shared__ double powers[kChoicePowers];
  const int row = static_cast<int>(blockIdx.y);
  if (!takes_part(args, row, logprobs)) return;
  const ChoiceRow from = row_of(args, row, logprobs, powers);
  if (!from.by_logit) return;
  const BlockTeam team;
  make_powers(team, powers);
  team.each(0, kChoiceBins, [&](int i) {
    bins.sum[i] = 0;
    bins.count[i] = 0;
  });
  team.meet();
  const Part part = part_of(args.vocabulary);
  // With top-k the weights of a few will do, later.
  const bool sums = logprobs || args.choices[row].top_k == 0;
  count_candidates(team, from, part.begin, part.end, sums, bins);
  team.meet();
  team.each(0, kChoiceBins, [&](int i) {
    if (bins.count[i] == 0) return;
    team.add(args.bins[row].count[i], bins.count[i]);
    if (bins.sum[i] > 0) team.add(args.bins[row].sum[i], bins.sum[i]);
  });
}

// The same of a row that goes by ids, where the elements of a bin lie together: one warp a bin.
__global__ void sum_by_id_kernel(const __grid_constant__ TokenChoiceArgs args) {
  __shared__ double powers[kChoicePowers];
  const int row = static_cast<int>(blockIdx.y);
  if (!takes_part(args, row, false)) return;
  const ChoiceRow from = row_of(args, row, false, powers);
  if (from.by_logit) return;
  const BlockTeam team;
  make_powers(team, powers);
  team.meet();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(gridDim.x * blockDim.x) / kWarp;
  const int width = from.ids_per_bin();
  constexpr int kAhead = 4;
  for (int bin = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
       bin * width < args.vocabulary; bin += warps) {
    std::uint64_t sum = 0;
    const int begin = bin * width + lane;
    const int end = min((bin + 1) * width, args.vocabulary);
    for (int first = begin; first < end; first += kAhead * kWarp) {
      float logit[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int token = first + i * kWarp;
        logit[i] = token < end ? from.logits[token] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int token = first + i * kWarp;
        if (token < end && from.candidate(token)) sum += from.weight(logit[i]);
      }
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (lane == 0) args.bins[row].sum[bin] = sum;
  }
}

// The histogram of a row, into the block's memory.
__device__ __forceinline__ void load_bins(const BlockTeam& team, const ChoiceBins& from,
                                          ChoiceBins& to) {
  team.each(0, kChoiceBins, [&](int i) {
    to.sum[i] = from.sum[i];
    to.count[i] = from.count[i];
  });
}

// Several blocks a row that goes by logits.
__global__ void list_kernel(const __grid_constant__ TokenChoiceArgs args, bool logprobs) {
  __shared__ ChoiceBins bins;
  __shared__ ChoiceSums sums;
  const int row = static_cast<int>(blockIdx.y);
  if (!takes_part(args, row, logprobs)) return;
  const RowChoice& choice = args.choices[row];
  const ChoiceRow from = row_of(args, row, logprobs, nullptr);
  if (!from.by_logit || (logprobs && choice.top_logprobs == 0)) return;
  const BlockTeam team;
  load_bins(team, args.bins[row], bins);
  team.meet();
  sum_groups(team, bins, sums);
  const int alternatives = min(min(choice.top_logprobs, kChoiceAlternatives), args.vocabulary);
  const ChoiceGoal goal = logprobs ? ChoiceGoal{static_cast<std::uint64_t>(alternatives) - 1, true}
                                   : goal_of(choice, sum_of(sums));
  const ChoicePlace last = place_of(team, bins, sums, goal.target, goal.by_count);
  const Part part = part_of(args.vocabulary);
  list_candidates(team, from, last, part.begin, part.end, args.lists[row]);
}

// One block a row. Leaves its histogram and its list empty.
__global__ void __launch_bounds__(kDrawThreads)
    draw_kernel(const __grid_constant__ TokenChoiceArgs args, bool logprobs) {
  extern __shared__ std::uint64_t memory[];
  ChoiceScratch& scratch = *reinterpret_cast<ChoiceScratch*>(memory);
  const int row = static_cast<int>(blockIdx.x);
  if (!takes_part(args, row, logprobs)) return;
  const BlockTeam team;
  const RowChoice& choice = args.choices[row];
  const ChoiceRow from = row_of(args, row, logprobs, scratch.powers);
  ChoiceList& list = args.lists[row];
  make_powers(team, scratch.powers);
  load_bins(team, args.bins[row], scratch.coarse);
  team.each(0, kChoiceBins, [&](int i) {
    args.bins[row].sum[i] = 0;
    args.bins[row].count[i] = 0;
  });
  team.meet();
  if (logprobs) {
    read_logprobs(team, choice.top_logprobs, from, list, scratch, args.logprobs[row]);
  } else {
    const int token = draw_token(team, choice, from, list, scratch);
    if (team.first()) args.chosen[row] = token;
  }
  team.meet();
  if (team.first()) list.count = 0;
}

// The logit of the chosen token, or of the one that is asked about, as it was before it was
// changed. One block a row.
__global__ void chosen_logit_kernel(const __grid_constant__ TokenChoiceArgs args) {
  const int row = static_cast<int>(blockIdx.x);
  const RowChoice& choice = args.choices[row];
  if (choice.top_logprobs < 0 || args.chosen[row] < 0) return;
  const int token = choice.logprobs_of >= 0 ? choice.logprobs_of : args.chosen[row];
  float& logit = args.logprobs[row].logit;
  if (threadIdx.x == 0) logit = args.logits[row * args.stride + token];
  __syncthreads();
  BlockTeam().each(0, choice.change_count, [&](int i) {
    if (choice.changes[i].token == token) logit = choice.changes[i].before;
  });
}

}  // namespace

Status prepare_token_choice() {
  return REPLAYSSM_CUDA_STATUS(cudaFuncSetAttribute(
      draw_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(ChoiceScratch)));
}

Status launch_token_choice(const TokenChoiceArgs& args, const TokenChoiceSteps& steps,
                           cudaStream_t stream) {
  if (args.rows == 0) return {};
  const auto rows = static_cast<unsigned>(args.rows);
  // Enough blocks to fill the device a few times, and no more, since each empties its bins.
  const unsigned blocks = max(2u, min(32u, 1024u / rows));
  const dim3 parts(blocks, rows);
  const auto draw = [&](bool logprobs) {
    if (logprobs || steps.by_logit) {
      count_kernel<<<parts, kCountThreads, 0, stream>>>(args, logprobs);
      list_kernel<<<parts, kCountThreads, 0, stream>>>(args, logprobs);
    }
    if (!logprobs && steps.by_id) sum_by_id_kernel<<<parts, kCountThreads, 0, stream>>>(args);
    draw_kernel<<<rows, kDrawThreads, sizeof(ChoiceScratch), stream>>>(args, logprobs);
  };
  if (steps.logprobs) draw(true);
  if (steps.changes) {
    change_kernel<<<rows, kChangeThreads, 0, stream>>>(args);
    best_allowed_of_part_kernel<<<dim3(kBestParts, rows), kBestThreads, 0, stream>>>(args);
    best_allowed_of_row_kernel<<<rows, kWarp, 0, stream>>>(args);
  }
  if (steps.draws) draw(false);
  if (steps.logprobs) chosen_logit_kernel<<<rows, kChangeThreads, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
