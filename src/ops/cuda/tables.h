// Host tables on their way to the device: rows, depths, layers of one operation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/result.h"
#include "ops/cuda/device_memory.h"

namespace replayssm::cuda {

// Device memory that a stream's operations take their tables from. The numbers travel as kernel
// parameters: nothing waits, no host memory has to outlive the call, and a captured graph keeps
// them. Operations of the stream run one after the other, so one memory serves them all.
class Tables {
 public:
  // Room for some 16,000 rows; larger tables take new memory once, which waits for the device.
  static Result<Tables> make();

  // Collects the tables of one operation; offsets are in words of four bytes, multiples of four.
  class Words {
   public:
    // Offset of a copy of `values`, a trivially copyable type of a multiple of four bytes.
    template <class T>
    std::size_t add(std::span<const T> values) {
      static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
      const std::size_t at = words_.size();
      words_.resize(at + (values.size_bytes() / sizeof(std::uint32_t) + 3) / 4 * 4);
      if (!values.empty()) std::memcpy(words_.data() + at, values.data(), values.size_bytes());
      return at;
    }
    std::span<const std::uint32_t> all() const { return words_; }

   private:
    std::vector<std::uint32_t> words_;
  };

  // Writes the tables and gives their place, which holds until the next write() in the stream.
  // What is there already is not written again, unless the stream is being captured: a graph must
  // bring its own. Error: out of memory, or what the launch gave.
  Result<const std::uint32_t*> write(const Words& words, cudaStream_t stream);

 private:
  DeviceBuffer memory_;
  std::vector<std::uint32_t> there_;  // what an eager write() left; empty after a captured one
  bool captured_ = false;             // graphs exist that write here whenever they are replayed
};

}  // namespace replayssm::cuda
