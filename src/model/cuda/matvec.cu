// A weight is a stream: each thread block takes pieces of whole rows, contiguous in memory, through
// a ring of stages in shared memory. One warp copies, eight multiply; they share the columns, and
// each keeps its part of the input in registers.
//
// Weights are nobody's result, so the copies begin before the kernel before has ended: the stages
// are full when the input is there. A piece costs some 650 cycles of waiting, whatever its size
// (bench/lab/NOTES.md), so pieces are large, and a block has a multiprocessor to itself.
#include "model/cuda/matvec.h"

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "model/cuda/decoder_math.cuh"
#include "model/float8.h"
#include "ops/cuda/overlapped_launch.h"
#include "ops/cuda/warp_sums.cuh"

namespace replayssm::cuda {
namespace {

constexpr int kWarps = 8;  // that multiply
constexpr int kConsumers = kWarps * kWarp;
constexpr int kThreads = kConsumers + kWarp;
constexpr int kGroup = kWarp * kOctet;  // columns that a warp multiplies at a time
constexpr int kGroupsMax = 9;           // of a warp
constexpr int kRowsKept = 128;          // whose sums wait in shared memory
constexpr int kStagesMax = 8;
constexpr int kPieceRowsMax = 16;
constexpr int kStageBytes = 208 << 10;  // of all stages
constexpr int kPieceBytes = 42 << 10;   // the most

// How a weight is cut: a pure function of its shape, like everything that a token's bits depend on.
struct Cut {
  int row_bytes = 0;
  int piece_rows = 1;
  int pieces = 0;
  int stages = 0;

  Cut(int rows, int bytes_of_row) : row_bytes(bytes_of_row) {
    while (piece_rows < kPieceRowsMax && 2 * piece_rows * row_bytes <= kPieceBytes) piece_rows *= 2;
    pieces = (rows + piece_rows - 1) / piece_rows;
    stages = std::min(kStageBytes / (piece_rows * row_bytes), kStagesMax);
  }
};

// The rows of a weight that are stored as T: bf16, or codes of e4m3.
template <class T>
struct Part {
  const T* data = nullptr;
  int rows = 0;
  int first = 0;                  // of the weight's rows
  const float* scales = nullptr;  // as Float8Rows
  int scale_pitch = 0;

  static constexpr bool kFloat8 = sizeof(T) == 1;
  static Part of(const DeviceMatrix& weight) {
    if constexpr (kFloat8) {
      return {weight.float8.codes, weight.float8.rows, 0, weight.float8.scales,
              float8_scale_pitch(weight.cols)};
    } else {
      return {weight.data, weight.bf16_rows(), weight.float8.rows};
    }
  }
  Cut cut(int cols) const { return {rows, cols * static_cast<int>(sizeof(T))}; }
};

// Groups of columns that warp 0 has, which has the most.
int groups_of(int cols) { return ((cols + kGroup - 1) / kGroup + kWarps - 1) / kWarps; }

struct Shared {
  std::uint64_t full[kStagesMax], empty[kStagesMax];
  float squares[kWarps];
  float sums[kRowsKept][kWarps];
};

__device__ __forceinline__ void meet_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
}

// The producer warp.
__device__ __forceinline__ void stream_weight(const void* weight, int all_rows, const Cut& cut,
                                              unsigned char* stages, Shared& shared) {
  const int stage_bytes = cut.piece_rows * cut.row_bytes;
  int stage = 0, turn = 0;
  for (int piece = static_cast<int>(blockIdx.x); piece < cut.pieces;
       piece += static_cast<int>(gridDim.x)) {
    const int first = piece * cut.piece_rows;
    const int rows = min(cut.piece_rows, all_rows - first);
    const auto bytes = static_cast<uint32_t>(rows * cut.row_bytes);
    uint64_t* const full = shared.full + stage;
    ptx::barrier_wait(shared.empty + stage, turn ^ 1);
    if (ptx::lane() == 0) ptx::barrier_arrive_expect(full, bytes);
    ptx::sync_warp();
    if (ptx::copies_blocks()) {
      ptx::copy_block(
          stages + stage * stage_bytes,
          static_cast<const unsigned char*>(weight) + static_cast<int64_t>(first) * cut.row_bytes,
          bytes, full);
    }
    ptx::copies_arrive(full);
    if (++stage == cut.stages) {
      stage = 0;
      turn ^= 1;
    }
  }
}

// This warp's part of the input, in bf16: group i is columns (warp + 8 i) * 256 + 8 lane and the
// seven after it.
template <int kGroups>
struct Input {
  uint4 group[kGroups];
};

// Everything is loaded before any of it is used: until the input is there, nothing is multiplied.
template <int kGroups>
class InputMaker {
 public:
  __device__ __forceinline__ InputMaker(const MatvecArgs& args, int warp, Shared& shared)
      : args_(args), warp_(warp), shared_(shared) {}

  __device__ __forceinline__ Input<kGroups> make() {
    switch (args_.input) {
      case MatvecInput::rms_norm:
        return rms_norm();
      case MatvecInput::silu_product:
        return of_two(args_.from, args_.from + args_.weight.cols, silu_product);
      case MatvecInput::sigmoid_product:
        return sigmoid();
      case MatvecInput::gated_norm:
        return gated_norms();
      case MatvecInput::plain:
        break;
    }
    return load(args_.from);
  }

 private:
  __device__ __forceinline__ int column(int group) const {
    return (warp_ + group * kWarps) * kGroup + ptx::lane() * kOctet;
  }
  __device__ __forceinline__ bool exists(int group) const {
    return column(group) < args_.weight.cols;
  }
  // Columns that do not exist repeat the last ones; they are not multiplied.
  __device__ __forceinline__ int inside(int group) const {
    return min(column(group), args_.weight.cols - kOctet);
  }
  __device__ __forceinline__ Input<kGroups> load(const bf16* from) const {
    Input<kGroups> x;
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
      x.group[i] = *reinterpret_cast<const uint4*>(from + inside(i));
    return x;
  }
  template <class Of>
  __device__ __forceinline__ Input<kGroups> combine(const Input<kGroups>& a,
                                                    const Input<kGroups>& b, Of&& of) const {
    Input<kGroups> x;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      x.group[i] = packed(of(octet_of(a.group[i]), octet_of(b.group[i])));
    }
    return x;
  }
  template <class Of>
  __device__ __forceinline__ Input<kGroups> of_two(const bf16* a, const bf16* b, Of&& of) const {
    const Input<kGroups> first = load(a), second = load(b);
    return combine(first, second, of);
  }

  __device__ __forceinline__ Input<kGroups> rms_norm() {
    const int row = args_.rows == nullptr ? 0 : args_.rows[0];
    const int cols = args_.weight.cols;
    Input<kGroups> x = load(args_.from + static_cast<int64_t>(row) * cols);
    Octet scale[kGroups];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) scale[i] = load_octet_f32(args_.scale + inside(i));
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (exists(i)) squares += sum_of_squares(octet_of(x.group[i]));
    }
    squares = warp_sum(squares);
    if (ptx::lane() == 0) shared_.squares[warp_] = squares;
    meet_consumers();
    squares = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) squares += shared_.squares[w];
    const float inverse = 1.0f / sqrtf(squares / static_cast<float>(cols) + args_.eps);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      x.group[i] = packed(scaled(octet_of(x.group[i]), inverse, scale[i].x));
    }
    return x;
  }

  // Half a warp has a head, in every group the same eight of its values.
  __device__ __forceinline__ Input<kGroups> gated_norms() const {
    const Octet scale = load_octet_f32(args_.scale + ptx::lane() * kOctet % kValueDim);
    return of_two(args_.from, args_.gate, [&](const Octet& x, const Octet& gate) {
      return gated_norm(x, gate, scale.x, args_.eps);
    });
  }

  // Behind the queries of each head lies its gate.
  __device__ __forceinline__ Input<kGroups> sigmoid() const {
    const Input<kGroups> x = load(args_.from);
    Input<kGroups> gate;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int at = inside(i);
      gate.group[i] =
          *reinterpret_cast<const uint4*>(args_.gate + at + at / args_.head_dim * args_.head_dim);
    }
    return combine(x, gate, sigmoid_product);
  }

  const MatvecArgs& args_;
  int warp_;
  Shared& shared_;
};

// The same numbers, which the compiler may not widen ahead of its loop: registers would not do.
__device__ __forceinline__ uint4 kept_packed(uint4 u) {
  asm volatile("" : "+r"(u.x), "+r"(u.y), "+r"(u.z), "+r"(u.w));
  return u;
}

// Eight neighbouring e4m3 numbers as fp32.
__device__ __forceinline__ Octet octet_of_codes(const uint2& u) {
  Octet y;
#pragma unroll
  for (int i = 0; i < kOctet; i += 2) {
    const uint32_t word = i < kOctet / 2 ? u.x : u.y;
    const auto pair = static_cast<__nv_fp8x2_storage_t>(i % 4 == 0 ? word & 0xffffu : word >> 16);
    const float2 wide = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
    y.x[i] = wide.x;
    y.x[i + 1] = wide.y;
  }
  return y;
}

// The multipliers of a lane's octets of a piece of float8 rows; for bf16 rows there are none.
template <class T, int kGroups>
struct Multipliers {
  float of_group[Part<T>::kFloat8 ? kGroups : 1];

  __device__ __forceinline__ Multipliers(const Part<T>& part, int cols, int first_row, int warp) {
    if constexpr (Part<T>::kFloat8) {
      constexpr int kBlock = static_cast<int>(kFloat8Block);
      const float* const row = part.scales + first_row / kBlock * part.scale_pitch;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const int at = (warp + i * kWarps) * kGroup + ptx::lane() * kOctet;
        of_group[i] = at < cols ? row[at / kBlock] : 0.0f;
      }
    }
  }
};

// kRows rows of a stage: this warp's sums, which are those of eight columns a lane, groups
// ascending, and of the lanes in a tree.
template <int kRows, class T, int kGroups>
__device__ __forceinline__ void multiply_rows(const T* rows, int cols, int warp,
                                              const Input<kGroups>& input,
                                              const Multipliers<T, kGroups>& multipliers,
                                              float (*to)[kWarps]) {
  const int lane = ptx::lane();
  float sums[kRows] = {};
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = (warp + i * kWarps) * kGroup + lane * kOctet;
    if (at >= cols) break;
    const Octet x = octet_of(kept_packed(input.group[i]));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if constexpr (Part<T>::kFloat8) {
        const Octet w = octet_of_codes(*reinterpret_cast<const uint2*>(rows + r * cols + at));
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kOctet; ++j) sum = fmaf(w.x[j], x.x[j], sum);
        sums[r] = fmaf(sum, multipliers.of_group[i], sums[r]);
      } else {
        const Octet w = load_octet(rows + r * cols + at);
#pragma unroll
        for (int j = 0; j < kOctet; ++j) sums[r] = fmaf(w.x[j], x.x[j], sums[r]);
      }
    }
  }
  sum_over_lanes(sums);
  if (lane < kRows) to[lane][warp] = sums[0];
}

__device__ __forceinline__ void store_sum(const MatvecArgs& args, int row,
                                          const float (&parts)[kWarps]) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += parts[w];
  if (args.out_type == DType::f32) {
    static_cast<float*>(args.out)[row] = sum;
  } else {
    bf16* const out = static_cast<bf16*>(args.out) + row;
    *out = narrow<bf16>(args.add ? widen(*out) + sum : sum);
  }
}

// The eight warps that multiply.
template <class T, int kGroups>
__device__ __forceinline__ void multiply_weight(const MatvecArgs& args, const Part<T>& part,
                                                const Cut& cut, const unsigned char* stages,
                                                Shared& shared) {
  const int cols = args.weight.cols, thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp, lane = thread % kWarp;
  const int stage_bytes = cut.piece_rows * cut.row_bytes;
  const int stride = static_cast<int>(gridDim.x);
  ptx::wait_for_previous_launch();
  ptx::allow_next_launch();
  const Input<kGroups> input = InputMaker<kGroups>(args, warp, shared).make();

  int stage = 0, turn = 0, kept = 0;
  int first_kept = static_cast<int>(blockIdx.x);  // the piece of the first sums that wait
  for (int piece = first_kept; piece < cut.pieces; piece += stride) {
    const Multipliers<T, kGroups> multipliers(part, cols, piece * cut.piece_rows, warp);
    ptx::barrier_wait(shared.full + stage, turn);
    const T* const rows = reinterpret_cast<const T*>(stages + stage * stage_bytes);
    float(*const sums)[kWarps] = shared.sums + kept;
    switch (cut.piece_rows) {
      case 1:
        multiply_rows<1>(rows, cols, warp, input, multipliers, sums);
        break;
      case 2:
        multiply_rows<2>(rows, cols, warp, input, multipliers, sums);
        break;
      case 4:
        multiply_rows<4>(rows, cols, warp, input, multipliers, sums);
        break;
      case 8:
        multiply_rows<8>(rows, cols, warp, input, multipliers, sums);
        break;
      default:
        multiply_rows<16>(rows, cols, warp, input, multipliers, sums);
    }
    ptx::sync_warp();
    if (lane == 0) ptx::barrier_arrive(shared.empty + stage);
    if (++stage == cut.stages) {
      stage = 0;
      turn ^= 1;
    }
    kept += cut.piece_rows;
    if (kept < kRowsKept && piece + stride < cut.pieces) continue;
    meet_consumers();
    for (int i = thread; i < kept; i += kConsumers) {
      const int row =
          (first_kept + i / cut.piece_rows * stride) * cut.piece_rows + i % cut.piece_rows;
      if (row < part.rows) store_sum(args, part.first + row, shared.sums[i]);
    }
    meet_consumers();
    kept = 0;
    first_kept = piece + stride;
  }
}

template <class T, int kGroups>
__global__ void __launch_bounds__(kThreads, 1)
    matvec_kernel(const __grid_constant__ MatvecArgs args, const __grid_constant__ Part<T> part,
                  const __grid_constant__ Cut cut) {
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ Shared shared;
  if (threadIdx.x == 0) {
    for (int i = 0; i < cut.stages; ++i) {
      ptx::barrier_init(shared.full + i, 1 + kWarp);  // the announcement, and plain copies
      ptx::barrier_init(shared.empty + i, kWarps);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    stream_weight(part.data, part.rows, cut, stages, shared);
  } else {
    multiply_weight<T, kGroups>(args, part, cut, stages, shared);
  }
}

template <class T, int kGroups>
Status launch(const MatvecArgs& args, cudaStream_t stream) {
  const auto part = Part<T>::of(args.weight);
  if (part.rows == 0) return {};
  const auto kernel = matvec_kernel<T, kGroups>;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, kStageBytes)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,
      static_cast<int>(cudaSharedmemCarveoutMaxShared))));
  const auto multiprocessors = current_multiprocessors();
  if (!multiprocessors) return multiprocessors.error();
  const Cut cut = part.cut(args.weight.cols);
  const auto bytes = static_cast<std::size_t>(cut.stages) *
                     static_cast<std::size_t>(cut.piece_rows) *
                     static_cast<std::size_t>(cut.row_bytes);
  const dim3 grid(static_cast<unsigned>(std::min(cut.pieces, *multiprocessors)));
  return launch_overlapped(kernel, {grid, kThreads, bytes}, stream, args, part, cut);
}

template <int kGroups>
Status launch_parts(const MatvecArgs& args, cudaStream_t stream) {
  REPLAYSSM_TRY((launch<std::uint8_t, kGroups>(args, stream)));
  return launch<bf16, kGroups>(args, stream);
}

template <class T>
bool fits(const DeviceMatrix& weight) {
  const auto part = Part<T>::of(weight);
  return part.rows == 0 || part.cut(weight.cols).stages >= 2;
}

}  // namespace

bool matvec_fits(const DeviceMatrix& weight, int tokens, std::size_t shared_bytes_per_block) {
  return tokens == 1 && weight.cols % kOctet == 0 && groups_of(weight.cols) <= kGroupsMax &&
         fits<bf16>(weight) && fits<std::uint8_t>(weight) &&
         kStageBytes + sizeof(Shared) <= shared_bytes_per_block;
}

Status launch_matvec(const MatvecArgs& args, cudaStream_t stream) {
  const int groups = groups_of(args.weight.cols);
  if (groups <= 3) return launch_parts<3>(args, stream);
  if (groups <= 5) return launch_parts<5>(args, stream);
  if (groups <= kGroupsMax) return launch_parts<kGroupsMax>(args, stream);
  return refuse("matvec: columns", args.weight.cols, "what matvec_fits() takes");
}

}  // namespace replayssm::cuda
