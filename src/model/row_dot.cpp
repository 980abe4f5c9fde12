#include "model/row_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/row_dot.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "model/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm {
namespace HWY_NAMESPACE {
namespace {

// x and out as in row_dot.h; w is the weight's first row, rows k apart.
template <class T>
struct Operands {
  const float* x;
  std::size_t x_stride;
  const T* w;
  std::size_t k;
  float* out;
  std::size_t out_stride;
};

// Weights that a tile or block will read later are asked for while another is computed: rows of a
// few KiB are too short for the hardware to notice in time. Two orders, both covering C rows:

// The place of each row that is being read, `ahead` elements on.
template <int C, class T>
struct FetchRows {
  const T* const (&w)[C];
  std::size_t ahead;
  HWY_INLINE void operator()(std::size_t k) const {
    for (int c = 0; c < C; ++c) prefetch(w[c] + k, ahead);
  }
};

// The C rows that begin at `first` in the order of addresses, which memory likes better; for long
// rows the first lines would be gone before they are used.
template <int C, class T>
struct FetchLines {
  const T* first;
  HWY_INLINE void operator()(std::size_t k) const {
    for (std::size_t c = 0; c < C; ++c) prefetch(first, k * C + c * hn::Lanes(FloatTag()));
  }
};

// The most bytes to be fetched in the order of addresses: half of a first-level cache.
inline constexpr std::size_t kFetchedLines = 16 << 10;

// Few rows: the product is bound by reading weights, which stream past once.
template <int R, int C, class T>
void stream_weights(const Operands<T>& o, int first, int last) {
  const FloatTag d;
  const auto tile = [&]<int kOutputs>(int n) {
    const T* w[kOutputs];
    for (int c = 0; c < kOutputs; ++c) w[c] = o.w + static_cast<std::size_t>(n + c) * o.k;
    FloatVec acc[R][kOutputs];
    for (auto& row : acc) {
      for (FloatVec& v : row) v = hn::Zero(d);
    }
    if (kOutputs * o.k * sizeof(T) <= kFetchedLines) {
      const FetchLines<kOutputs, T> fetch{w[kOutputs - 1] + o.k};
      accumulate_tile<R, kOutputs>(o.x, o.x_stride, w, o.k, acc, fetch);
    } else if constexpr (R > 1) {
      const FetchRows<kOutputs, T> fetch{w, kOutputs * o.k};
      accumulate_tile<R, kOutputs>(o.x, o.x_stride, w, o.k, acc, fetch);
    } else {  // a single row leaves nothing to wait for: the hardware keeps up
      accumulate_tile<R, kOutputs>(o.x, o.x_stride, w, o.k, acc);
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kOutputs; ++c) {
        o.out[static_cast<std::size_t>(r) * o.out_stride + static_cast<std::size_t>(n + c)] =
            sum_lanes(acc[r][c]);
      }
    }
  };
  int n = first;
  for (; n + C <= last; n += C) tile.template operator()<C>(n);
  for (; n < last; ++n) tile.template operator()<1>(n);
}

// Many rows: the product is bound by arithmetic, so the operands of the inner loop have to come
// from the first-level cache. A block of rows keeps its accumulators in memory while panels of the
// inner dimension pass by, which leaves the order of every sum as it is.
inline constexpr int kBlockRows = 32;
inline constexpr int kBlockOutputs = 48;
// While all rows fit one block, weights come from memory: narrower panels are fetched just in time.
inline constexpr int kFetchedOutputs = 24;
inline constexpr std::size_t kPanelDepth = 512;
inline constexpr int kTileRows = 4;
inline constexpr int kTileOutputs = 3;

// Rows [first_row, first_row + ...) of x times rows [first_output, first_output + outputs) of w.
template <class T>
struct Block {
  const Operands<T>* operands;
  int first_row;
  int first_output;
  int outputs;
  int next_block;  // outputs from this block to the next one
  float* sums;     // [kBlockRows, kBlockOutputs, lanes], valid between two panels
};

// Panel [k, k + depth) of the tile of rows m .. m + R - 1 and outputs n .. n + C - 1 of a block.
template <int R, int C, bool kPrefetch, class T>
HWY_INLINE void block_tile(const Block<T>& b, int m, int n, std::size_t k, std::size_t depth) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const Operands<T>& o = *b.operands;
  const T* w[C];
  for (int c = 0; c < C; ++c) {
    w[c] = o.w + static_cast<std::size_t>(b.first_output + n + c) * o.k + k;
  }
  const auto sums = [&](int r, int c) {
    return b.sums + static_cast<std::size_t>((m + r) * kBlockOutputs + n + c) * lanes;
  };
  FloatVec acc[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) acc[r][c] = k == 0 ? hn::Zero(d) : hn::LoadU(d, sums(r, c));
  }
  const std::size_t row = static_cast<std::size_t>(b.first_row + m);
  const bool last_panel = k + depth == o.k;
  // The next panel, or the first one of the block of outputs after this.
  const std::size_t ahead = last_panel ? static_cast<std::size_t>(b.next_block) * o.k - k : depth;
  const float* x = o.x + row * o.x_stride + k;
  if constexpr (kPrefetch) {
    const FetchRows<C, T> fetch{w, ahead};
    accumulate_tile<R, C>(x, o.x_stride, w, depth, acc, fetch);
  } else {
    accumulate_tile<R, C>(x, o.x_stride, w, depth, acc);
  }
  for (int r = 0; r < R; ++r) {
    float* out = o.out + (row + static_cast<std::size_t>(r)) * o.out_stride;
    for (int c = 0; c < C; ++c) {
      if (last_panel) {
        out[b.first_output + n + c] = sum_lanes(acc[r][c]);
      } else {
        hn::StoreU(acc[r][c], d, sums(r, c));
      }
    }
  }
}

template <int R, bool kPrefetch, class T>
void tile_row(const Block<T>& b, int m, std::size_t k, std::size_t depth) {
  int n = 0;
  for (; n + kTileOutputs <= b.outputs; n += kTileOutputs) {
    block_tile<R, kTileOutputs, kPrefetch>(b, m, n, k, depth);
  }
  for (; n < b.outputs; ++n) block_tile<R, 1, kPrefetch>(b, m, n, k, depth);
}

template <bool kPrefetch, class T>
void tile_row_of(int rows, const Block<T>& b, int m, std::size_t k, std::size_t depth) {
  switch (rows) {
    case 1:
      return tile_row<1, kPrefetch>(b, m, k, depth);
    case 2:
      return tile_row<2, kPrefetch>(b, m, k, depth);
    case 3:
      return tile_row<3, kPrefetch>(b, m, k, depth);
    default:
      return tile_row<kTileRows, kPrefetch>(b, m, k, depth);
  }
}

template <class T>
void multiply_blocks(const Operands<T>& o, int rows, int first, int last) {
  HWY_ALIGN float sums[kBlockRows * kBlockOutputs * (HWY_MAX_BYTES / sizeof(float))];
  const int width = rows <= kBlockRows ? kFetchedOutputs : kBlockOutputs;
  for (int n = first; n < last; n += width) {
    for (int row = 0; row < rows; row += kBlockRows) {
      const Block<T> block{&o, row, n, std::min(width, last - n), width, sums};
      const int block_rows = std::min(kBlockRows, rows - row);
      const int tiles = (block_rows + kTileRows - 1) / kTileRows;
      for (std::size_t k = 0; k < o.k; k += kPanelDepth) {
        const std::size_t depth = std::min(kPanelDepth, o.k - k);
        for (int t = 0, m = 0; t < tiles; ++t) {  // tiles of nearly equal height
          const int height = (block_rows - m) / (tiles - t);
          row + m == 0 ? tile_row_of<true>(height, block, m, k, depth)
                       : tile_row_of<false>(height, block, m, k, depth);
          m += height;
        }
      }
    }
  }
}

// Tile shapes are the largest whose sums fit in 16 vector registers with room for the operands.
template <class T>
void rows_times_weight(const Operands<T>& o, int rows, int first, int last) {
  switch (rows) {
    case 1:
      return stream_weights<1, 8>(o, first, last);
    case 2:
      return stream_weights<2, 4>(o, first, last);
    case 3:
      return stream_weights<3, 3>(o, first, last);
    case 4:
      return stream_weights<4, 3>(o, first, last);
    default:
      return multiply_blocks(o, rows, first, last);
  }
}

void row_dot_f32(const float* x, std::size_t x_stride, int rows, const float* w, std::size_t k,
                 int first, int last, float* out, std::size_t out_stride) {
  rows_times_weight(Operands<float>{x, x_stride, w, k, out, out_stride}, rows, first, last);
}
void row_dot_bf16(const float* x, std::size_t x_stride, int rows, const bf16* w, std::size_t k,
                  int first, int last, float* out, std::size_t out_stride) {
  rows_times_weight(Operands<bf16>{x, x_stride, w, k, out, out_stride}, rows, first, last);
}
void row_dot_f16(const float* x, std::size_t x_stride, int rows, const std::uint16_t* w,
                 std::size_t k, int first, int last, float* out, std::size_t out_stride) {
  rows_times_weight(Operands<f16>{x, x_stride, reinterpret_cast<const f16*>(w), k, out, out_stride},
                    rows, first, last);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm {

HWY_EXPORT(row_dot_f32);
HWY_EXPORT(row_dot_bf16);
HWY_EXPORT(row_dot_f16);

void row_dot(const float* x, std::size_t x_stride, int rows, const WeightMatrix& weight, int first,
             int last, float* out, std::size_t out_stride) {
  const auto k = static_cast<std::size_t>(weight.cols);
  switch (weight.type) {
    case DType::f32:
      return HWY_DYNAMIC_DISPATCH(row_dot_f32)(x, x_stride, rows,
                                               static_cast<const float*>(weight.data), k, first,
                                               last, out, out_stride);
    case DType::bf16:
      return HWY_DYNAMIC_DISPATCH(row_dot_bf16)(x, x_stride, rows,
                                                static_cast<const bf16*>(weight.data), k, first,
                                                last, out, out_stride);
    case DType::f16:
      return HWY_DYNAMIC_DISPATCH(row_dot_f16)(x, x_stride, rows,
                                               static_cast<const std::uint16_t*>(weight.data), k,
                                               first, last, out, out_stride);
    case DType::f64:
      return;  // no WeightMatrix has it
  }
}

}  // namespace replayssm
#endif  // HWY_ONCE
