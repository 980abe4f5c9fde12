// The instructions of src/ops/cuda/ptx.cuh on the CPU: every thread of a block is a fiber, warp
// operations are meetings of 32 fibers, and one block runs at a time. It executes the kernels' own
// device code without a GPU, to check indexing, fragment layouts and barriers; it knows nothing of
// memory ordering or speed.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/bfloat16.h"

// CUDA's keywords and vector types, as far as the kernels use them.
#define __device__
#define __forceinline__ inline
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float __uint_as_float(uint32_t u) { return std::bit_cast<float>(u); }
inline uint32_t __float_as_uint(float f) { return std::bit_cast<uint32_t>(f); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
using std::exp;
using std::max;
using std::min;

namespace replayssm::cuda::emulated {

struct Barrier {  // fits the 8 bytes of an mbarrier
  int16_t expected, pending;
  int16_t phase;
  int16_t unused;
};

// One block in execution.
class Block {
 public:
  Block(int block, int blocks, int threads, std::function<void()> body)
      : block_(block), blocks_(blocks), warps_(static_cast<size_t>(threads / 32)) {
    for (int i = 0; i < threads; ++i) fibers_.push_back(std::make_unique<Fiber>());
    body_ = std::move(body);
  }

  void run() {
    current = this;
    for (auto& fiber : fibers_) {
      getcontext(&fiber->context);
      fiber->context.uc_stack.ss_sp = fiber->stack.get();
      fiber->context.uc_stack.ss_size = Fiber::kStackBytes;
      fiber->context.uc_link = &scheduler_;
      makecontext(&fiber->context, &Block::start, 0);
    }
    size_t alive = fibers_.size();
    while (alive > 0) {
      progress_ = false;
      alive = 0;
      for (size_t i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i]->done) continue;
        running_ = static_cast<int>(i);
        swapcontext(&scheduler_, &fibers_[i]->context);
        if (!fibers_[i]->done) ++alive;
      }
      if (alive > 0 && !progress_) throw std::runtime_error("deadlock in an emulated block");
    }
    current = nullptr;
  }

  int thread() const { return running_; }
  int threads() const { return static_cast<int>(fibers_.size()); }
  int block() const { return block_; }
  int blocks() const { return blocks_; }

  // Lets other threads run until `ready`.
  template <class Ready>
  void wait_until(Ready&& ready) {
    while (!ready()) yield();
    progress_ = true;
  }

  // All 32 lanes bring kWords words and see everybody's.
  template <int kWords>
  const uint32_t (*meet(const uint32_t (&words)[kWords]))[16] {
    Warp& warp = warps_[static_cast<size_t>(running_ / 32)];
    const int lane = running_ % 32;
    for (int i = 0; i < kWords; ++i) warp.brought[lane][i] = words[i];
    const int generation = warp.generation;
    if (++warp.arrived == 32) {
      std::memcpy(warp.seen[generation & 1], warp.brought, sizeof(warp.brought));
      warp.arrived = 0;
      ++warp.generation;
    }
    wait_until([&] { return warp.generation != generation; });
    return warp.seen[generation & 1];
  }

  // A counted barrier among `count` threads; id 0 is the block's.
  void sync(int id, int count) {
    Named& named = named_[id];
    const int generation = named.generation;
    if (++named.arrived == count) {
      named.arrived = 0;
      ++named.generation;
    }
    wait_until([&] { return named.generation != generation; });
  }

  static Block* current;

 private:
  struct Fiber {
    ucontext_t context{};
    static constexpr std::size_t kStackBytes = 128 << 10;
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    bool done = false;
  };
  struct Warp {
    uint32_t brought[32][16], seen[2][32][16];
    int arrived = 0, generation = 0;
  };
  struct Named {
    int arrived = 0, generation = 0;
  };

  static void start() {
    current->body_();
    current->fibers_[static_cast<size_t>(current->running_)]->done = true;
    current->progress_ = true;
  }
  void yield() {
    const size_t me = static_cast<size_t>(running_);
    swapcontext(&fibers_[me]->context, &scheduler_);
  }

  int block_, blocks_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::function<void()> body_;
  ucontext_t scheduler_{};
  Named named_[16];
  int running_ = 0;
  bool progress_ = false;
};

inline Block* Block::current = nullptr;

}  // namespace replayssm::cuda::emulated

namespace replayssm::cuda::ptx {

using emulated::Block;
inline constexpr bool kBulkCopies = true;

inline int thread() { return Block::current->thread(); }
inline int threads() { return Block::current->threads(); }
inline int block() { return Block::current->block(); }
inline int blocks() { return Block::current->blocks(); }
inline int lane() { return thread() & 31; }

inline uint32_t meet_and_take(uint32_t x, int source) {
  const uint32_t words[1] = {x};
  return Block::current->meet(words)[source & 31][0];
}
inline float shuffle(float x, int source) {
  return __uint_as_float(meet_and_take(__float_as_uint(x), source));
}
inline int shuffle(int x, int source) {
  return static_cast<int>(meet_and_take(static_cast<uint32_t>(x), source));
}
inline float shuffle_xor(float x, int mask) { return shuffle(x, lane() ^ mask); }
inline float shuffle_down(float x, int distance) {
  const int source = lane() + distance;
  return shuffle(x, source < 32 ? source : lane());
}
inline void sync_warp() { meet_and_take(0, 0); }
inline void sync_block() { Block::current->sync(0, threads()); }
inline void sync_group(int id) { Block::current->sync(id, 128); }

inline float half_of(uint32_t word, int which) {
  return __uint_as_float(which != 0 ? word & 0xffff0000u : word << 16);
}
inline void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                uint32_t b1) {
  const uint32_t words[6] = {a0, a1, a2, a3, b0, b1};
  const auto all = Block::current->meet(words);
  const int g = lane() >> 2, t = lane() & 3;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * t + (i & 1);
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      const int from = (k % 8) / 2, high = k / 8;
      const float a = half_of(all[g * 4 + from][high * 2 + (i >> 1)], k & 1);
      const float b = half_of(all[column * 4 + from][4 + high], k & 1);
      sum += static_cast<double>(a) * b;
    }
    c[i] += static_cast<float>(sum);
  }
}
inline uint32_t pack_bf16(float low, float high) {
  return static_cast<uint32_t>(to_bf16(low).bits) | static_cast<uint32_t>(to_bf16(high).bits) << 16;
}

inline emulated::Barrier* of(uint64_t* barrier) {
  return reinterpret_cast<emulated::Barrier*>(barrier);
}
inline void barrier_init(uint64_t* barrier, int arrivals) {
  const auto n = static_cast<int16_t>(arrivals);
  *of(barrier) = {n, n, 0, 0};
}
inline void barrier_init_fence() {}
inline void barrier_arrive(uint64_t* barrier) {
  if (--of(barrier)->pending == 0) {
    of(barrier)->pending = of(barrier)->expected;
    ++of(barrier)->phase;
  }
}
// Announced and copied bytes are compared by the harness: see copied_bytes.
inline int64_t announced_bytes = 0, copied_bytes = 0;
inline void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  announced_bytes += bytes;
  barrier_arrive(barrier);
}
inline void barrier_wait(uint64_t* barrier, int parity) {
  Block::current->wait_until([&] { return (of(barrier)->phase & 1) != (parity & 1); });
}

inline void copy_checked(void* to, const void* from, uint32_t bytes) {
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes == 0) {
    throw std::runtime_error("misaligned bulk copy");
  }
  std::memcpy(to, from, bytes);
}
inline void copy_piece(void* to, const void* from) { copy_checked(to, from, 16); }
inline bool copies_blocks() { return lane() == 0; }
inline void copy_block(void* to, const void* from, uint32_t bytes, uint64_t*) {
  copy_checked(to, from, bytes);
  copied_bytes += bytes;
}
inline void copy_small(void* to, const void* from, uint32_t bytes) {
  for (uint32_t i = static_cast<uint32_t>(lane()) * 16; i < bytes; i += 512) {
    copy_checked(static_cast<char*>(to) + i, static_cast<const char*>(from) + i, 16);
  }
}
inline void copy_float(float* to, const float* from, bool live) { *to = live ? *from : 0.0f; }
inline void copies_arrive(uint64_t* barrier) { barrier_arrive(barrier); }
inline void fence_before_bulk() {}
inline void store_block(void* to, const void* from, uint32_t bytes) {
  if (lane() == 0) copy_checked(to, from, bytes);
}
inline void wait_for_stores_to_read() {}
inline void allow_next_launch() {}
inline void wait_for_previous_launch() {}

}  // namespace replayssm::cuda::ptx
