#include "ops/cuda/cuda_space.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/word_writes.h"

namespace replayssm::cuda {
namespace {

// cudaDeviceProp::memPitch of every device: the two-dimensional calls refuse a larger one.
constexpr std::size_t kLargestPitch = (std::size_t{1} << 31) - 1;

Status move(std::span<const MemoryCopy> copies, cudaMemcpyKind kind, cudaStream_t stream) {
  for (const MemoryCopy& c : copies) {
    if (c.bytes == 0 || c.count == 0) continue;
    if (c.count == 1 || std::max(c.from_pitch, c.to_pitch) > kLargestPitch) {
      for (std::size_t i = 0; i < c.count; ++i) {
        REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(
            c.to + i * c.to_pitch, c.from + i * c.from_pitch, c.bytes, kind, stream)));
      }
      continue;
    }
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpy2DAsync(c.to, c.to_pitch, c.from, c.from_pitch, c.bytes, c.count, kind, stream)));
  }
  return {};
}

// The copies word by word; empty where they are larger than a small write, or not of whole words.
std::optional<WordWrites> word_writes(std::span<const MemoryCopy> copies) {
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  WordWrites writes;
  for (const MemoryCopy& c : copies) {
    const std::size_t words = c.bytes / kWord;
    if (c.bytes % kWord != 0 || c.count * words > std::size_t{kMostWordWrites}) return {};
    for (std::size_t i = 0; i < c.count; ++i) {
      std::byte* const to = c.to + i * c.to_pitch;
      if (reinterpret_cast<std::uintptr_t>(to) % kWord != 0) return {};
      for (std::size_t word = 0; word < words; ++word) {
        if (writes.count == kMostWordWrites) return {};
        writes.to[writes.count] = reinterpret_cast<std::uint32_t*>(to) + word;
        std::memcpy(&writes.word[writes.count], c.from + i * c.from_pitch + word * kWord, kWord);
        ++writes.count;
      }
    }
  }
  return writes;
}

}  // namespace

Result<CudaSpace> CudaSpace::make(cudaStream_t stream) {
  CudaSpace space(stream);
  auto transfers = Stream::make();
  if (!transfers) return transfers.error();
  space.transfers_ = std::move(*transfers);
  auto event = Event::make();
  if (!event) return event.error();
  space.so_far_ = std::move(*event);
  return space;
}

Result<std::byte*> CudaSpace::allocate(std::size_t bytes) {
  if (bytes == 0) return static_cast<std::byte*>(nullptr);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the next call is not to report it again
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return Error{
        fmt::format("GPU memory: {} bytes are asked for, {} of {} are free", bytes, free, total)};
  }
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(error));
  auto* const made = static_cast<std::byte*>(data);
  const Status zeroed = REPLAYSSM_CUDA_STATUS(cudaMemsetAsync(data, 0, bytes, stream_));
  if (zeroed.ok()) return made;
  cudaFree(data);
  return zeroed.error();
}

void CudaSpace::free(std::byte* data, std::size_t /*bytes*/) noexcept { cudaFree(data); }

Status CudaSpace::copy(std::span<const MemoryCopy> copies) {
  return move(copies, cudaMemcpyDeviceToDevice, stream_);
}

Status CudaSpace::fill(std::span<const MemoryRegion> regions, unsigned char byte) {
  for (const MemoryRegion& r : regions) {
    if (r.bytes == 0 || r.count == 0) continue;
    if (r.count == 1 || r.pitch > kLargestPitch) {
      for (std::size_t i = 0; i < r.count; ++i) {
        REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemsetAsync(r.piece(i), byte, r.bytes, stream_)));
      }
      continue;
    }
    REPLAYSSM_TRY(
        REPLAYSSM_CUDA_STATUS(cudaMemset2DAsync(r.data, r.pitch, byte, r.bytes, r.count, stream_)));
  }
  return {};
}

Status CudaSpace::read(std::span<const MemoryCopy> copies) {
  REPLAYSSM_TRY(move(copies, cudaMemcpyDeviceToHost, stream_));
  return wait_for(stream_);
}

Status CudaSpace::write(std::span<const MemoryCopy> copies) {
  if (const auto words = word_writes(copies)) return launch_word_writes(*words, stream_);
  REPLAYSSM_TRY(move(copies, cudaMemcpyHostToDevice, stream_));
  return wait_for(stream_);
}

Result<std::byte*> CudaSpace::allocate_outside(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // the next call is not to report it again
    return Error{fmt::format("page-locked memory: {} bytes: {}", bytes, cudaGetErrorString(error))};
  }
  return static_cast<std::byte*>(data);
}

void CudaSpace::free_outside(std::byte* data, std::size_t /*bytes*/) noexcept {
  static_cast<void>(wait_for(transfers_));
  cudaFreeHost(data);
}

Result<Transfer> CudaSpace::transfer(std::span<const MemoryCopy> copies, cudaMemcpyKind kind) {
  Event end;
  if (events_.empty()) {
    auto made = Event::make();
    if (!made) return made.error();
    end = std::move(*made);
  } else {
    end = std::move(events_.back());
    events_.pop_back();
  }
  const Transfer next{newest_.number + 1};
  pending_.push_back({next, std::move(end)});
  if (const Status begun = begin_transfer(copies, kind, pending_.back().end); !begun.ok()) {
    // Some of the copies may be under way, and the caller gives back what they touch.
    static_cast<void>(wait_for(transfers_));
    pending_.pop_back();
    return begun.error();
  }
  newest_ = next;
  return newest_;
}

Status CudaSpace::begin_transfer(std::span<const MemoryCopy> copies, cudaMemcpyKind kind,
                                 Event& end) {
  REPLAYSSM_TRY(so_far_.record(stream_));
  REPLAYSSM_TRY(so_far_.hold_back(transfers_));
  REPLAYSSM_TRY(move(copies, kind, transfers_));
  return end.record(transfers_);
}

Result<Transfer> CudaSpace::fetch(std::span<const MemoryCopy> copies) {
  return transfer(copies, cudaMemcpyDeviceToHost);
}

Result<Transfer> CudaSpace::send(std::span<const MemoryCopy> copies) {
  return transfer(copies, cudaMemcpyHostToDevice);
}

Result<Transfer> CudaSpace::copy_beside(std::span<const MemoryCopy> copies) {
  return transfer(copies, cudaMemcpyDeviceToDevice);
}

Transfer CudaSpace::ended() {
  while (!pending_.empty() && pending_.front().end.reached()) {
    events_.push_back(std::move(pending_.front().end));
    pending_.pop_front();
  }
  return pending_.empty() ? newest_ : Transfer{pending_.front().transfer.number - 1};
}

Status CudaSpace::follow(Transfer transfer) {
  if (over(transfer)) return {};
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const Pending& each) { return each.transfer >= transfer; });
  return found == pending_.end() ? Status{} : found->end.hold_back(stream_);
}

}  // namespace replayssm::cuda
