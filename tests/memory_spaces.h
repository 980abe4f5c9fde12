// Tests of the pools run in the host's memory and in memory that stands for a device's: the host
// has its addresses, and every access through one of them ends the program.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/memory_space.h"
#include "ops/linear_ops.h"

namespace replayssm {

class GuardedSpace final : public MemorySpace {
 public:
  // Lets the host at the memory while it lives, as the space's own operations do.
  class Access {
   public:
    explicit Access(const GuardedSpace& space) : space_(space) {
      space_.protect(PROT_READ | PROT_WRITE);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
    ~Access() { space_.protect(PROT_NONE); }

   private:
    const GuardedSpace& space_;
  };

  GuardedSpace() = default;
  GuardedSpace(const GuardedSpace&) = delete;
  GuardedSpace& operator=(const GuardedSpace&) = delete;
  ~GuardedSpace() override { EXPECT_TRUE(mappings_.empty()) << "memory was not given back"; }

  // The most bytes that allocate() gives.
  void limit(std::size_t bytes) { limit_ = bytes; }
  // Parts of all operations so far, each of which costs a device about one call.
  int parts() const { return parts_; }

  bool on_host() const override { return false; }

  Result<std::byte*> allocate(std::size_t bytes) override {
    if (bytes > limit_) {
      return Error{fmt::format("device memory: {} bytes are needed, {} are free", bytes, limit_)};
    }
    const std::size_t mapped = std::max<std::size_t>(bytes, 1);
    void* data = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return Error{"mmap failed"};
    mappings_[static_cast<std::byte*>(data)] = mapped;
    limit_ -= bytes;
    return static_cast<std::byte*>(data);
  }
  void free(std::byte* data, std::size_t bytes) noexcept override {
    munmap(data, mappings_.at(data));
    mappings_.erase(data);
    limit_ += bytes;
  }

  Status copy(std::span<const MemoryCopy> copies) override { return move(copies, true, true); }
  Status read(std::span<const MemoryCopy> copies) override { return move(copies, true, false); }
  Status write(std::span<const MemoryCopy> copies) override { return move(copies, false, true); }
  Status fill(std::span<const MemoryRegion> regions, unsigned char byte) override {
    parts_ += static_cast<int>(regions.size());
    for (const MemoryRegion& region : regions) {
      EXPECT_TRUE(holds(region.data, region.bytes, region.count, region.pitch));
    }
    const Access open(*this);
    return host_space().fill(regions, byte);
  }

 private:
  Status move(std::span<const MemoryCopy> copies, bool from_inside, bool to_inside) {
    parts_ += static_cast<int>(copies.size());
    for (const MemoryCopy& each : copies) {
      if (each.bytes * each.count == 0) continue;
      EXPECT_EQ(holds(each.from, each.bytes, each.count, each.from_pitch), from_inside);
      EXPECT_EQ(holds(each.to, each.bytes, each.count, each.to_pitch), to_inside);
    }
    const Access open(*this);
    return host_space().copy(copies);
  }

  // Whether all pieces lie within one allocation.
  bool holds(const std::byte* data, std::size_t bytes, std::size_t count, std::size_t pitch) const {
    if (bytes * count == 0) return true;
    return std::any_of(mappings_.begin(), mappings_.end(), [&](const auto& mapping) {
      return data >= mapping.first &&
             data + (count - 1) * pitch + bytes <= mapping.first + mapping.second;
    });
  }
  void protect(int access) const {
    for (const auto& [data, bytes] : mappings_) {
      if (mprotect(data, bytes, access) != 0) std::abort();
    }
  }

  std::map<std::byte*, std::size_t> mappings_;
  std::size_t limit_ = std::size_t{1} << 40;
  int parts_ = 0;
};

// Operations of a backend whose memory is guarded: they reach it, their caller does not.
class GuardedOps final : public LinearOps {
 public:
  GuardedOps(LinearOps& ops, const GuardedSpace& space) : ops_(ops), space_(space) {}

  std::string_view name() const override { return "guarded"; }
  Status gates(const GateArgs& args) override { return with_access(&LinearOps::gates, args); }
  Status packed_step(const StepArgs& args) override {
    return with_access(&LinearOps::packed_step, args);
  }
  Status window_step(const StepArgs& args) override {
    return with_access(&LinearOps::window_step, args);
  }
  Status chunk_prefill(const StepArgs& args) override {
    return with_access(&LinearOps::chunk_prefill, args);
  }
  Status fold(const FoldArgs& args) override { return with_access(&LinearOps::fold, args); }
  Status advance(const AdvanceArgs& args) override {
    return with_access(&LinearOps::advance, args);
  }
  Status conv_window(const ConvArgs& args) override {
    return with_access(&LinearOps::conv_window, args);
  }
  Status conv_chunk(const ConvArgs& args) override {
    return with_access(&LinearOps::conv_chunk, args);
  }
  Status export_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<float> out) const override {
    const GuardedSpace::Access open(space_);
    return ops_.export_state(shape, states, slot, out);
  }
  Status import_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<const float> in) const override {
    const GuardedSpace::Access open(space_);
    return ops_.import_state(shape, states, slot, in);
  }
  GateForm gate_form() const override { return ops_.gate_form(); }

 private:
  template <class Args>
  Status with_access(Status (LinearOps::*operation)(const Args&), const Args& args) {
    const GuardedSpace::Access open(space_);
    return (ops_.*operation)(args);
  }

  LinearOps& ops_;
  const GuardedSpace& space_;
};

// A test that runs in the host's memory and in guarded memory. The parameter: guarded.
class InEitherSpace : public testing::TestWithParam<bool> {
 protected:
  MemorySpace& space() { return GetParam() ? static_cast<MemorySpace&>(guarded_) : host_space(); }
  // The CPU backend, for the memory of space().
  LinearOps& ops() { return GetParam() ? static_cast<LinearOps&>(guarded_ops_) : *cpu_; }

  GuardedSpace guarded_;

 private:
  ThreadPool threads_{1};
  std::unique_ptr<LinearOps> cpu_ = make_cpu_ops(threads_);
  GuardedOps guarded_ops_{*cpu_, guarded_};
};

inline std::string space_name(const testing::TestParamInfo<bool>& test) {
  return test.param ? "Guarded" : "Host";
}

// The bytes of a region, piece after piece.
inline std::vector<std::byte> bytes_of(MemorySpace& space, const MemoryRegion& region) {
  std::vector<std::byte> bytes(region.total());
  const MemoryCopy copy = copy_of(region, {bytes.data(), region.bytes, region.count, region.bytes});
  EXPECT_TRUE(space.read({&copy, 1}).ok());
  return bytes;
}

// Writes a region's bytes, piece after piece.
inline void put_bytes(MemorySpace& space, const MemoryRegion& region,
                      std::vector<std::byte> bytes) {
  ASSERT_EQ(bytes.size(), region.total());
  const MemoryCopy copy = copy_of({bytes.data(), region.bytes, region.count, region.bytes}, region);
  EXPECT_TRUE(space.write({&copy, 1}).ok());
}

// One value of a view's array.
template <class T>
T value_at(MemorySpace& space, T* array, int i) {
  T value;
  const std::vector<std::byte> bytes =
      bytes_of(space, {reinterpret_cast<std::byte*>(array + i), sizeof(T)});
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

}  // namespace replayssm
