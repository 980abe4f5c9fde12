// Host memory for what leaves a device's pools for a while, in extents of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/memory_space.h"

namespace replayssm {

// One piece as large as the limit where reserve() got it; otherwise it grows up to the limit by
// pieces that it keeps as long as it can: memory that a device copies to and from is slow to get.
// Empty ones are given back where an extent finds no room otherwise. An extent is the first gap
// that is large enough. Not thread-safe.
class HostArena {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 20;

  // The space outlives the arena. A piece has `piece_bytes`, or more where an extent needs it.
  HostArena(MemorySpace& space, std::int64_t most, std::size_t piece_bytes = kPieceBytes)
      : space_(space), most_(most), piece_bytes_(piece_bytes) {}
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();

  // Gets everything at once, so that allocate() need not: page-locking takes long. Error: the space
  // does not give that much in one piece, and why; nothing has changed.
  Status reserve();

  // Null: no gap of so many bytes, at least 1, and no room to grow by them. May be released while
  // the space's operations on it are under way: those on its next use come later.
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* data);

  // Whether allocate() would find so many bytes if nothing else were allocated.
  bool could_hold(std::size_t bytes) const;

  // Bytes of all pieces.
  std::int64_t bytes() const { return held_; }

 private:
  struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::map<std::size_t, std::size_t> gaps;     // sizes by offset
    std::map<std::size_t, std::size_t> extents;  // the same
  };
  static std::byte* take(Piece& piece, std::size_t bytes);
  bool grow(std::size_t bytes);
  void give_back_empty_pieces(std::size_t wanted);

  MemorySpace& space_;
  std::int64_t most_;  // no more than what there was, once the space had no more to give
  std::size_t piece_bytes_;
  std::int64_t held_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace replayssm
