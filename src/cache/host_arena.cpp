#include "cache/host_arena.h"

#include <algorithm>
#include <iterator>

namespace replayssm {
namespace {

constexpr std::size_t kAlignment = 256;  // of extents

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

HostArena::~HostArena() {
  for (const Piece& piece : pieces_) space_.free_outside(piece.data, piece.bytes);
}

Status HostArena::reserve() {
  if (held_ > 0 || most_ <= 0) return {};
  const auto bytes = static_cast<std::size_t>(most_);
  const auto data = space_.allocate_outside(bytes);
  if (!data) return data.error();
  pieces_.push_back({*data, bytes, {{0, bytes}}, {}});
  held_ = most_;
  return {};
}

std::byte* HostArena::allocate(std::size_t bytes) {
  bytes = aligned(bytes);
  for (Piece& piece : pieces_) {
    if (std::byte* const found = take(piece, bytes); found != nullptr) return found;
  }
  return grow(bytes) ? take(pieces_.back(), bytes) : nullptr;
}

std::byte* HostArena::take(Piece& piece, std::size_t bytes) {
  const auto gap = std::find_if(piece.gaps.begin(), piece.gaps.end(),
                                [&](const auto& each) { return each.second >= bytes; });
  if (gap == piece.gaps.end()) return nullptr;
  const auto [offset, size] = *gap;
  piece.extents.emplace(offset, bytes);
  piece.gaps.erase(gap);
  if (size > bytes) piece.gaps.emplace(offset + bytes, size - bytes);
  return piece.data + offset;
}

bool HostArena::could_hold(std::size_t bytes) const {
  return static_cast<std::int64_t>(aligned(bytes)) <= most_;
}

bool HostArena::grow(std::size_t bytes) {
  give_back_empty_pieces(bytes);
  const auto left = static_cast<std::size_t>(most_ - held_);
  if (bytes > left) return false;
  const std::size_t size = std::max(bytes, std::min(piece_bytes_, left));
  const auto data = space_.allocate_outside(size);
  if (!data) {
    most_ = held_;
    return false;
  }
  pieces_.push_back({*data, size, {{0, size}}, {}});
  held_ += static_cast<std::int64_t>(size);
  return true;
}

// So many as are needed for `wanted` bytes to be within the limit; none if all would not do.
void HostArena::give_back_empty_pieces(std::size_t wanted) {
  const auto empty = [](const Piece& piece) { return piece.extents.empty(); };
  const auto limit = most_ - static_cast<std::int64_t>(wanted);
  std::int64_t without = held_;
  for (const Piece& piece : pieces_) {
    if (empty(piece)) without -= static_cast<std::int64_t>(piece.bytes);
  }
  if (held_ <= limit || without > limit) return;
  for (auto piece = pieces_.begin(); piece != pieces_.end() && held_ > limit;) {
    if (!empty(*piece)) {
      ++piece;
      continue;
    }
    space_.free_outside(piece->data, piece->bytes);
    held_ -= static_cast<std::int64_t>(piece->bytes);
    piece = pieces_.erase(piece);
  }
}

void HostArena::release(std::byte* data) {
  for (Piece& piece : pieces_) {
    if (data < piece.data || data >= piece.data + piece.bytes) continue;
    const auto extent = piece.extents.find(static_cast<std::size_t>(data - piece.data));
    auto [offset, size] = *extent;
    piece.extents.erase(extent);
    // One gap with its neighbours.
    const auto after = piece.gaps.find(offset + size);
    if (after != piece.gaps.end()) {
      size += after->second;
      piece.gaps.erase(after);
    }
    const auto next = piece.gaps.lower_bound(offset);
    if (next != piece.gaps.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    piece.gaps.emplace(offset, size);
    return;
  }
}

}  // namespace replayssm
