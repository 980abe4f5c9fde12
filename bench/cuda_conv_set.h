// Device memory of one layer's convolution for a batch of rows, many times over as in
// cuda_layer_set.h, and the check of its results.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda_layer_set.h"
#include "ops/cuda/conv_args.h"

namespace replayssm::bench {

struct CudaConvOptions {
  int channels = 0;
  int fold_block = 16;
  int batch = 1;
  int tokens = 1;        // of every row: a window up to FoldGeometry::kLargestWindow, or a chunk
  bool settled = false;  // ConvLaunch::settled

  bool chunk() const { return tokens > FoldGeometry::kLargestWindow; }
  Result<FoldGeometry> geometry() const {
    return FoldGeometry::make(fold_block, chunk() ? 1 : tokens);
  }
};

// Launch i uses the next of the rotating memories. Nothing folds.
class CudaConvSet {
 public:
  static Result<CudaConvSet> make(const CudaConvOptions& options);
  int steps() const { return rotations_; }
  int conv_rows() const { return geometry_.conv_rows(); }
  cuda::ConvLaunch at(int step) const;

 private:
  CudaConvOptions options_;
  FoldGeometry geometry_;
  int rotations_ = 1, task_count_ = 0;
  DeviceBuffer rings_, weight_, input_, out_, tasks_, cursor_, row_;
};

// The largest error of fp32 outputs against float64, relative to 1 + |output|, of the same rows
// with some 2,048 tokens at most, so that blocks have several tasks where those of the timed launch
// do. Error: it is above 2e-6 (four products and an exponential in fp32), bf16 outputs are not
// these rounded, the rings are not the reference's, or what the runtime gave.
Result<double> check_conv(const CudaConvOptions& options, cudaStream_t stream);

}  // namespace replayssm::bench
