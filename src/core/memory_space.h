// Where the memory of the pools lies and how it moves: on the host, or on a device whose addresses
// the host can hand on but not dereference.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "core/result.h"

namespace replayssm {

// `count` pieces of `bytes` bytes each, `pitch` bytes from one to the next: a row's keys in every
// layer, for example.
struct MemoryRegion {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t count = 1;
  std::size_t pitch = 0;

  std::size_t total() const { return bytes * count; }
  std::byte* piece(std::size_t i) const { return data + i * pitch; }
};

// `count` pieces of `bytes` bytes each, from and to places that are `from_pitch` and `to_pitch`
// bytes apart. A pitch is at least `bytes` where there are several pieces, and can be above 2 GiB:
// whole layers of a pool lie between its pieces.
struct MemoryCopy {
  const std::byte* from = nullptr;
  std::size_t from_pitch = 0;
  std::byte* to = nullptr;
  std::size_t to_pitch = 0;
  std::size_t bytes = 0;
  std::size_t count = 1;
};

// The copy of one region into another. Precondition: of the same pieces.
inline MemoryCopy copy_of(const MemoryRegion& from, const MemoryRegion& to) {
  return {from.data, from.pitch, to.data, to.pitch, from.bytes, from.count};
}

// A transfer beside a space's operations, by its number. They end in the order of their numbers;
// number 0 is over from the start.
struct Transfer {
  std::int64_t number = 0;
  constexpr auto operator<=>(const Transfer&) const = default;
};

// Owned by the engine and lent to the pools. Operations take effect in the order of their calls,
// on a device in that of all work on one stream. The parts of one call have no order: none writes
// what another reads or writes. Parts of no bytes, or of no pieces, do nothing. Errors are a
// device's, and leave the memory that was named undefined. Not thread-safe.
class MemorySpace {
 public:
  // Nobody waits for a device in a write() of at most so many bytes in all, whole aligned words of
  // four.
  static constexpr std::size_t kSmallWrite = 64;

  virtual ~MemorySpace() = default;

  // Whether the host may dereference what allocate() gave.
  virtual bool on_host() const = 0;

  // At least `bytes` bytes, zero, aligned to 64. Error: the bytes asked for, and those that are
  // free where that is known.
  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  // What allocate() gave for the same size.
  virtual void free(std::byte* data, std::size_t bytes) noexcept = 0;

  // Within the space.
  virtual Status copy(std::span<const MemoryCopy> copies) = 0;
  virtual Status fill(std::span<const MemoryRegion> regions, unsigned char byte) = 0;
  // From the space to host memory; complete on return.
  virtual Status read(std::span<const MemoryCopy> copies) = 0;
  // From host memory, which may be reused on return, to the space.
  virtual Status write(std::span<const MemoryCopy> copies) = 0;

  // Host memory that fetch() and send() reach: the host's plainly, or what a device asks for.
  // free_outside() waits for those that are under way.
  virtual Result<std::byte*> allocate_outside(std::size_t bytes);
  virtual void free_outside(std::byte* data, std::size_t bytes) noexcept;
  // As read(), write() and copy(), but as transfers: each begins when all operations so far and all
  // transfers before it have ended, and neither the host nor later operations wait for it. What it
  // reads must not be changed, and what it writes not be touched, by what does not come after it.
  // After an error no part of it is under way.
  virtual Result<Transfer> fetch(std::span<const MemoryCopy> copies) {
    REPLAYSSM_TRY(read(copies));
    return Transfer{};
  }
  virtual Result<Transfer> send(std::span<const MemoryCopy> copies) {
    REPLAYSSM_TRY(write(copies));
    return Transfer{};
  }
  virtual Result<Transfer> copy_beside(std::span<const MemoryCopy> copies) {
    REPLAYSSM_TRY(copy(copies));
    return Transfer{};
  }
  // The newest transfer that has ended, as all before it have. Asks the device; does not wait.
  virtual Transfer ended() { return Transfer{std::numeric_limits<std::int64_t>::max()}; }
  bool over(Transfer transfer) { return transfer.number == 0 || transfer <= ended(); }
  // Has all later operations, and all later work of the device that they are in order with, come
  // after a transfer. The host does not wait.
  virtual Status follow(Transfer /*transfer*/) { return {}; }

  // How often the host has waited for all that a stream of the device held, in these operations or
  // elsewhere.
  virtual std::int64_t waits() const { return 0; }
};

// The host's memory: allocate_zeroed() and plain copies, done on return. One object for all.
MemorySpace& host_space();

// Thrown by what allocates in its constructor, at start-up.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(Error error) : error_(std::move(error)) {}
  const char* what() const noexcept override { return error_.message.c_str(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// Owns zeroed memory of a space, which outlives it. Move-only; the address stays the same.
class SpaceBuffer {
 public:
  // Throws OutOfMemory.
  SpaceBuffer(MemorySpace& space, std::size_t bytes);
  SpaceBuffer(SpaceBuffer&& other) noexcept
      : space_(other.space_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  SpaceBuffer& operator=(SpaceBuffer&& other) noexcept {
    std::swap(space_, other.space_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SpaceBuffer() {
    if (data_ != nullptr) space_->free(data_, bytes_);
  }

  MemorySpace& space() const { return *space_; }
  // An address of the space.
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  MemoryRegion whole() const { return {data_, bytes_}; }

 private:
  MemorySpace* space_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace replayssm
