#include "ops/cuda/tables.h"

#include <algorithm>

#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

// As much as kernel parameters hold on every architecture, 4 KiB, less the other parameters.
constexpr int kWordsPerLaunch = 1000;

struct Piece {
  std::uint32_t word[kWordsPerLaunch];
};

__global__ void write_words(std::uint32_t* to, const __grid_constant__ Piece piece, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = piece.word[i];
}

}  // namespace

Result<Tables> Tables::make() {
  Tables tables;
  auto memory = DeviceBuffer::make(256 << 10);
  if (!memory) return memory.error();
  tables.memory_ = std::move(*memory);
  return std::move(tables);
}

Result<const std::uint32_t*> Tables::write(const Words& words, cudaStream_t stream) {
  const std::span<const std::uint32_t> all = words.all();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamIsCapturing(stream, &capture)));
  const bool capturing = capture != cudaStreamCaptureStatusNone;
  if (!capturing && !captured_ && std::ranges::equal(all, there_)) {
    return static_cast<const std::uint32_t*>(memory_.as<std::uint32_t>());
  }
  if (memory_.bytes() < all.size_bytes()) {
    if (capturing || captured_) {
      return refuse("tables of an operation", all.size_bytes(),
                    fmt::format("at most {} bytes once graphs are captured: run the largest batch "
                                "eagerly before",
                                memory_.bytes()));
    }
    auto larger = DeviceBuffer::make(2 * all.size_bytes());
    if (!larger) return larger.error();
    memory_ = std::move(*larger);
  }
  for (std::size_t done = 0; done < all.size(); done += kWordsPerLaunch) {
    Piece piece;
    const std::size_t count = std::min<std::size_t>(kWordsPerLaunch, all.size() - done);
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(done), count, piece.word);
    const int threads = 256;
    const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
    write_words<<<blocks, threads, 0, stream>>>(memory_.as<std::uint32_t>() + done, piece,
                                                static_cast<int>(count));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGetLastError()));
  }
  captured_ = captured_ || capturing;
  there_.assign(all.begin(), all.end());
  return static_cast<const std::uint32_t*>(memory_.as<std::uint32_t>());
}

}  // namespace replayssm::cuda
