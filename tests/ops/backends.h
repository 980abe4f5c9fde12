// The backends that operation tests run on. A new backend is one more entry.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "ops/backend_memory.h"
#include "ops/linear_ops.h"

namespace replayssm::tests {

// A backend and what it works with. Members are destroyed in reverse: operations first.
struct OwnedOps {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<BackendMemory> memory;  // null: operations work on host memory
  std::unique_ptr<LinearOps> ops;
  std::string absent;  // why there are no operations on this machine; then `ops` is null
};

struct Backend {
  std::string name;
  std::function<OwnedOps(int threads)> make;
  // Output error against float64 that is allowed, relative (L2): fp32 states, packed step.
  double tolerance = 1e-6;
  // What the backend has. Tests leave out what is missing, by name.
  int window_max = FoldGeometry::kLargestWindow;  // tokens of a window
  int packed_max = FoldGeometry::kLargestWindow;  // tokens of a packed step
  bool cursors_checked = true;                    // arguments are refused for what the cursors hold
  bool bf16_activations = false;                  // q, k, v and the rings' keys are bf16
  RingAccess ring_access = RingAccess::staged;
};

inline std::ostream& operator<<(std::ostream& to, const Backend& b) { return to << b.name; }

inline Backend reference_backend() {
  Backend backend;
  backend.name = "reference";
  backend.make = [](int) {
    OwnedOps owned;
    owned.ops = make_reference_ops();
    return owned;
  };
  // Inputs are exact and the output is rounded to fp32 once: 2^-24.
  backend.tolerance = 6e-8;
  return backend;
}

inline Backend cpu_backend() {
  Backend backend;
  backend.name = "cpu";
  backend.make = [](int threads) {
    OwnedOps owned;
    owned.pool = std::make_unique<ThreadPool>(threads);
    owned.ops = make_cpu_ops(*owned.pool);
    return owned;
  };
  return backend;
}

// Memory apart from the host's arrays, as a device has it, with no numbers in it at first.
class MemoryApart final : public BackendMemory {
 public:
  void* take(std::size_t bytes) override {
    const std::size_t rounded = (bytes + 256) / 256 * 256;
    return std::memset(std::aligned_alloc(256, rounded), 0x5a, rounded);
  }
  void give_back(void* memory) override { std::free(memory); }
  void put(void* memory, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(memory, from, bytes);
  }
  void get(void* to, const void* memory, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, memory, bytes);
  }
};

// The CPU on such memory: finds tests that leave a device without what it needs.
inline Backend cpu_apart_backend() {
  Backend backend = cpu_backend();
  backend.name = "cpu_apart";
  backend.make = [](int threads) {
    OwnedOps owned = cpu_backend().make(threads);
    owned.memory = std::make_unique<MemoryApart>();
    return owned;
  };
  return backend;
}

// The CUDA operations on this machine's first GPU, or why there are none: cuda_backend.cpp, and
// cuda_backend_absent.cpp in builds without CUDA.
OwnedOps make_cuda_backend();

inline Backend cuda_backend() {
  Backend backend;
  backend.name = "cuda";
  backend.make = [](int) { return make_cuda_backend(); };
  backend.packed_max = 1;
  backend.cursors_checked = false;
  backend.bf16_activations = true;
  backend.ring_access = RingAccess::shared;
  return backend;
}

// The CUDA device code that needs no warps, on the CPU: convolutions only.
OwnedOps make_emulated_cuda_backend();

inline Backend emulated_cuda_backend() {
  Backend backend = cuda_backend();
  backend.name = "emulated_cuda";
  backend.make = [](int) { return make_emulated_cuda_backend(); };
  backend.cursors_checked = true;
  return backend;
}

// Those that work on host memory and are everywhere.
inline std::vector<Backend> backends() { return {reference_backend(), cpu_backend()}; }

// All; on a machine without a GPU the tests of the last one are skipped and say so.
inline std::vector<Backend> all_backends() {
  return {reference_backend(), cpu_backend(), cuda_backend()};
}

}  // namespace replayssm::tests

// Skips the test where the backend is not on this machine, and says why.
#define REPLAYSSM_NEEDS_BACKEND(owned) \
  if ((owned).ops == nullptr) GTEST_SKIP() << (owned).absent
// Skips the test where the backend does not have what it is about yet.
#define REPLAYSSM_NEEDS(backend, what, has) \
  if (!(has)) GTEST_SKIP() << (backend).name << ": " << (what) << " not built yet"
