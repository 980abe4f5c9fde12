// Device memory of one linear layer for a batch of rows, with random contents, many times over so
// that a pass does not fit the L2 cache; and the time of launches over it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/launch.h"
#include "ops/shape.h"

namespace replayssm::bench {

using cuda::DeviceBuffer;
using cuda::Stream;

// The bytes of all memories that a set rotates over; the largest L2 cache is 50 MiB.
inline constexpr std::size_t kBeyondCache = 400u << 20;

// Makes `buffer`, filled with `count` numbers in [low, high], or with the integers given.
Status make_random(DeviceBuffer& buffer, std::size_t count, DType type, float low, float high);
Status make_integers(DeviceBuffer& buffer, const std::vector<int>& values);

// Fills a buffer with copies of a random pattern of bf16 or fp32 numbers in [low, high].
Status fill_random(DeviceBuffer& buffer, DType type, float low, float high);

// Microseconds of one of `launches` launches captured in one graph: the median of nine replays,
// after two that do not count. Error: the first that a launch or the runtime gave.
Result<double> time_launches(cudaStream_t stream, int launches,
                             const std::function<Status(int)>& launch);

struct CudaSetOptions {
  HeadShape heads;
  DType state = DType::f32;
  int fold_block = 16;
  int batch = 1;
  std::optional<int> history;  // live records of every row; nothing: the whole ring cycle
  int rotations_max = 96;
  int window = 1;  // tokens of every row
  double accepted_per_step = 1;
  bool chunk = false;  // a row's tokens are a chunk, and windows have one token
};

// Steps of one layer: step i uses the next of the rotating memories, and after all of them the next
// ring phase, with rows staggered over the phases.
class CudaStepSet {
 public:
  static Result<CudaStepSet> make(const CudaSetOptions& options);
  // Launches that cover every memory and phase once.
  int steps() const { return rotations_ * phases_; }
  cuda::StepArgs at(int step) const;
  cuda::StepGeometry geometry() const;
  // Live records before a step, over rows and phases.
  double mean_records() const { return mean_records_; }

 private:
  CudaSetOptions options_;
  int rotations_ = 1, phases_ = 1, ring_rows_ = 0;
  double mean_records_ = 0;
  DeviceBuffer states_, keys_, key_scales_, corrections_, gates_, qkv_, gate_, beta_, out_;
  DeviceBuffer row_, committed_, checkpoint_, first_token_, tokens_;
};

struct CudaFoldOptions {
  HeadShape heads;
  DType state = DType::f32;
  int ring_rows = 32;
  int records = 16;
  int batch = 1;
  int layers = 1;
};

// Folds of all layers in one launch; small ones rotate over several memories.
class CudaFoldSet {
 public:
  static Result<CudaFoldSet> make(const CudaFoldOptions& options);
  int steps() const { return sets_ < 2 ? 2 : sets_; }
  cuda::FoldArgs at(int step) const;
  cuda::FoldGeometryOnDevice geometry() const;

 private:
  CudaFoldOptions options_;
  int sets_ = 1;
  DeviceBuffer states_, keys_, key_scales_, corrections_, gates_, table_, row_, from_, records_;
};

}  // namespace replayssm::bench
