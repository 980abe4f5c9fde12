// The instructions of src/ops/cuda/ptx.cuh on the CPU: every thread of a block is a fiber, warp
// operations are meetings of 32 fibers, and one block runs at a time. It executes the kernels' own
// device code without a GPU, to check indexing, fragment layouts and barriers, and under
// ThreadSanitizer what barriers order (cuda_emulated_order.h). It knows nothing of speed.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/bfloat16.h"
#include "cuda_emulated_order.h"

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
inline double __longlong_as_double(long long i) { return std::bit_cast<double>(i); }
inline long long __double_as_longlong(double d) { return std::bit_cast<long long>(d); }
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
  // What the threads did is released to `end`.
  Block(int block, int blocks, int threads, const void* end, std::function<void()> body)
      : block_(block),
        blocks_(blocks),
        threads_(threads),
        end_(end),
        warps_(static_cast<size_t>(threads / 32)) {
    for (int i = 0; i < threads; ++i) fibers_.push_back(std::make_unique<Fiber>());
    body_ = std::move(body);
  }

  void run() {
    for (auto& fiber : fibers_) fiber->strand = std::make_unique<Strand>();
    copies_strand_ = std::make_unique<Strand>();
    copies_ = copies_strand_.get();
    for (Warp& warp : warps_) {
      warp.stores = std::make_unique<Strand>();
      warp.stores_strand = warp.stores.get();
    }
    first_warp_ = warps_.data();
    const Unobserved scheduling;
    current = this;
    for (auto& fiber : fibers_) {
      getcontext(&fiber->context);
      fiber->context.uc_stack.ss_sp = fiber->stack.get();
      fiber->context.uc_stack.ss_size = Fiber::kStackBytes;
      fiber->context.uc_link = nullptr;
      makecontext(&fiber->context, &Block::start, 0);
    }
    size_t alive = fibers_.size();
    while (alive > 0) {
      progress_ = false;
      alive = 0;
      for (size_t i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i]->done) continue;
        running_ = static_cast<int>(i);
        fibers_[i]->strand->become();
        swapcontext(&scheduler_, &fibers_[i]->context);
        if (!fibers_[i]->done) ++alive;
      }
      if (alive > 0 && !progress_) throw std::runtime_error("deadlock in an emulated block");
    }
    current = nullptr;
  }

  REPLAYSSM_UNOBSERVED int thread() const { return running_; }
  REPLAYSSM_UNOBSERVED int threads() const { return threads_; }
  REPLAYSSM_UNOBSERVED int block() const { return block_; }
  REPLAYSSM_UNOBSERVED int blocks() const { return blocks_; }

  // Lets other threads run until `ready`.
  template <class Ready>
  void wait_until(Ready&& ready) {
    const Unobserved waiting;
    while (!ready()) yield();
    progress_ = true;
  }

  // All 32 lanes bring kWords words and see everybody's. No memory is ordered by it.
  template <int kWords>
  const uint32_t (*meet(const uint32_t (&words)[kWords]))[16] {
    const Unobserved meeting;
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

  // All 32 lanes meet, and what they did before is ordered before what they do after.
  void sync_warp() {
    const uint32_t nothing[1] = {0};
    release(own_warp());
    meet(nothing);
    acquire(own_warp());
  }

  // A counted barrier among `count` threads; id 0 is the block's.
  void sync(int id, int count) {
    release(named_ + id);
    {
      const Unobserved counting;
      Named& named = named_[id];
      const int generation = named.generation;
      if (++named.arrived == count) {
        named.arrived = 0;
        ++named.generation;
      }
      wait_until([&] { return named.generation != generation; });
    }
    acquire(named_ + id);
  }

  // A bulk copy into shared memory: it may happen any time from now on, up to the completion of the
  // barrier.
  void copy_in(void* to, const void* from, std::size_t bytes, const void* barrier) {
    release(copies());
    const Caller issuer;
    copies()->become();
    acquire(copies());
    std::memcpy(to, from, bytes);
    release(barrier);
    issuer.become();
  }
  // A bulk copy out of shared memory, from what the warp's lanes have passed through their fences
  // on, up to wait_for_stores().
  void copy_out(void* to, const void* from, std::size_t bytes) {
    const Caller issuer;
    stores()->become();
    acquire(&own_warp()->stores);
    std::memcpy(to, from, bytes);
    release(&own_warp()->arrived);
    issuer.become();
  }
  void fence_before_bulk() { release(&own_warp()->stores); }
  void wait_for_stores() { acquire(&own_warp()->arrived); }

  static Block* current;

 private:
  struct Fiber {
    ucontext_t context{};
    static constexpr std::size_t kStackBytes = 128 << 10;
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    std::unique_ptr<Strand> strand;
    bool done = false;
  };
  struct Warp {
    uint32_t brought[32][16], seen[2][32][16];
    int arrived = 0, generation = 0;
    std::unique_ptr<Strand> stores;
    const Strand* stores_strand = nullptr;
  };
  struct Named {
    int arrived = 0, generation = 0;
  };

  REPLAYSSM_UNOBSERVED Warp* own_warp() { return first_warp_ + running_ / 32; }
  REPLAYSSM_UNOBSERVED const Strand* copies() const { return copies_; }
  REPLAYSSM_UNOBSERVED const Strand* stores() { return own_warp()->stores_strand; }

  REPLAYSSM_UNOBSERVED static void start() {
    current->body_();
    current->leave();
  }
  REPLAYSSM_UNOBSERVED void leave() {
    Fiber* const me = fibers_.data()[running_].get();
    me->done = true;
    progress_ = true;
    release(end_);
    main_.become();
    setcontext(&scheduler_);
  }
  void yield() {
    const size_t me = static_cast<size_t>(running_);
    main_.become();
    swapcontext(&fibers_[me]->context, &scheduler_);
  }

  int block_, blocks_, threads_;
  const void* end_;
  Caller main_;
  std::unique_ptr<Strand> copies_strand_;
  const Strand* copies_ = nullptr;
  std::vector<Warp> warps_;
  Warp* first_warp_ = nullptr;
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

REPLAYSSM_UNOBSERVED inline int thread() { return Block::current->thread(); }
REPLAYSSM_UNOBSERVED inline int threads() { return Block::current->threads(); }
REPLAYSSM_UNOBSERVED inline int block() { return Block::current->block(); }
REPLAYSSM_UNOBSERVED inline int blocks() { return Block::current->blocks(); }
// The block, for what the fibers do together.
REPLAYSSM_UNOBSERVED inline Block& own_block() { return *Block::current; }
inline int lane() { return thread() & 31; }

inline uint32_t meet_and_take(uint32_t x, int source) {
  const uint32_t words[1] = {x};
  const auto all = own_block().meet(words);
  const emulated::Unobserved taking;
  return all[source & 31][0];
}
inline float shuffle(float x, int source) {
  return __uint_as_float(meet_and_take(__float_as_uint(x), source));
}
inline int shuffle(int x, int source) {
  return static_cast<int>(meet_and_take(static_cast<uint32_t>(x), source));
}
inline uint32_t shuffle(uint32_t x, int source) { return meet_and_take(x, source); }
inline float shuffle_xor(float x, int mask) { return shuffle(x, lane() ^ mask); }
inline float shuffle_down(float x, int distance) {
  const int source = lane() + distance;
  return shuffle(x, source < 32 ? source : lane());
}
inline void sync_warp() { own_block().sync_warp(); }
inline void sync_block() { own_block().sync(0, threads()); }
template <class T>
inline void store_where(bool live, T* to, T x) {
  if (live) *to = x;
}
template <int kRegisters>
inline void give_registers() {}
template <int kRegisters>
inline void take_registers() {}
template <int kThreads = 128>
inline void sync_group(int id) {
  own_block().sync(id, kThreads);
}

inline float half_of(uint32_t word, int which) {
  return __uint_as_float(which != 0 ? word & 0xffff0000u : word << 16);
}
// A sum of products and `c` as the matrix units of sm_90 make it: everything is cut off below the
// 25th bit of the largest addend, and the sum to the 24 bits of an fp32 number, towards zero.
class CutSum {
 public:
  explicit CutSum(float c) { add(c); }
  void add(double x) { addends_[count_++] = x; }
  float value() const {
    double largest = 0;
    for (int i = 0; i < count_; ++i) largest = std::max(largest, std::fabs(addends_[i]));
    if (!(largest > 0) || std::isinf(largest)) {
      return static_cast<float>(std::accumulate(addends_, addends_ + count_, 0.0));
    }
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 24);
    double sum = 0;  // of multiples of the unit: exact
    for (int i = 0; i < count_; ++i) sum += std::trunc(addends_[i] / unit) * unit;
    const float rounded = static_cast<float>(sum);
    return std::fabs(static_cast<double>(rounded)) > std::fabs(sum) ? std::nextafterf(rounded, 0.0f)
                                                                    : rounded;
  }

 private:
  double addends_[17];
  int count_ = 0;
};
inline void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                uint32_t b1) {
  const uint32_t words[6] = {a0, a1, a2, a3, b0, b1};
  const auto all = own_block().meet(words);
  const emulated::Unobserved taking;
  const int g = lane() >> 2, t = lane() & 3;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * t + (i & 1);
    CutSum sum(c[i]);
    for (int k = 0; k < 16; ++k) {
      const int from = (k % 8) / 2, high = k / 8;
      const float a = half_of(all[g * 4 + from][high * 2 + (i >> 1)], k & 1);
      const float b = half_of(all[column * 4 + from][4 + high], k & 1);
      sum.add(static_cast<double>(a) * b);
    }
    c[i] = sum.value();
  }
}
inline void load_transposed(uint32_t (&r)[4], const void* row) {
  const auto address = reinterpret_cast<uintptr_t>(row);
  if (address % 16 != 0) throw std::runtime_error("misaligned row of a matrix");
  const uint32_t words[2] = {static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32)};
  const auto all = own_block().meet(words);
  const int g = lane() >> 2, t = lane() & 3;
  for (int i = 0; i < 4; ++i) {
    uint16_t pair[2];
    for (int j = 0; j < 2; ++j) {
      const int from = 8 * i + 2 * t + j;
      uintptr_t at;
      {
        const emulated::Unobserved taking;
        at = all[from][0] | static_cast<uintptr_t>(all[from][1]) << 32;
      }
      pair[j] = reinterpret_cast<const uint16_t*>(at)[g];
    }
    r[i] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
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
  emulated::release(barrier);
  const emulated::Unobserved counting;
  if (--of(barrier)->pending == 0) {
    of(barrier)->pending = of(barrier)->expected;
    ++of(barrier)->phase;
  }
}
// Announced and copied bytes are compared by the harness: see copied_bytes.
inline int64_t announced_bytes = 0, copied_bytes = 0;
inline void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  {
    const emulated::Unobserved counting;
    announced_bytes += bytes;
  }
  barrier_arrive(barrier);
}
inline void barrier_wait(uint64_t* barrier, int parity) {
  own_block().wait_until([&] { return (of(barrier)->phase & 1) != (parity & 1); });
  emulated::acquire(barrier);
}

inline void check_copy(const void* to, const void* from, uint32_t bytes) {
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes == 0) {
    throw std::runtime_error("misaligned bulk copy");
  }
}
// A plain copy counts as done by its lane at once: who may read it waits for copies_arrive()
// anyway.
inline void copy_piece(void* to, const void* from) {
  check_copy(to, from, 16);
  std::memcpy(to, from, 16);
}
inline bool copies_blocks() { return lane() == 0; }
inline void copy_block(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  check_copy(to, from, bytes);
  own_block().copy_in(to, from, bytes, barrier);
  const emulated::Unobserved counting;
  copied_bytes += bytes;
}
inline void prefetch_block(const void* from, uint32_t bytes) { check_copy(from, from, bytes); }
inline void copy_small(void* to, const void* from, uint32_t bytes) {
  for (uint32_t i = static_cast<uint32_t>(lane()) * 16; i < bytes; i += 512) {
    copy_piece(static_cast<char*>(to) + i, static_cast<const char*>(from) + i);
  }
}
inline void copy_float(float* to, const float* from, bool live) { *to = live ? *from : 0.0f; }
inline void copies_arrive(uint64_t* barrier) { barrier_arrive(barrier); }
inline void fence_before_bulk() { own_block().fence_before_bulk(); }
inline void store_block(void* to, const void* from, uint32_t bytes) {
  if (lane() != 0) return;
  check_copy(to, from, bytes);
  own_block().copy_out(to, from, bytes);
}
inline void wait_for_stores_to_read() { own_block().wait_for_stores(); }
inline void allow_next_launch() {}
inline void wait_for_previous_launch() {}

}  // namespace replayssm::cuda::ptx
