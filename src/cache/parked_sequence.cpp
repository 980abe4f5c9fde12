#include "cache/parked_sequence.h"

#include <utility>

namespace replayssm {
namespace {

// All regions of a sequence in the pools, in one order: those of the memory's space, and those that
// are on the host anyway.
struct Parts {
  std::vector<MemoryRegion> inside;
  std::vector<MemoryRegion> on_host;
};

std::size_t sum_of(const std::vector<MemoryRegion>& regions) {
  std::size_t bytes = 0;
  for (const MemoryRegion& region : regions) bytes += region.total();
  return bytes;
}

Parts parts_of(const SequenceMemory& memory, const Residence& sequence) {
  Parts parts;
  // Before the first fold there is no state.
  if (sequence.cursor().checkpoint.tokens > 0 || memory.layout().recurrence == Recurrence::packed) {
    parts.inside.push_back(memory.slots().memory(sequence.base()));
  }
  for (const MemoryRegion& ring : memory.rows().row_memory(sequence.row())) {
    parts.inside.push_back(ring);
  }
  const auto spaces = memory.pages().page_spaces();
  const auto pages =
      static_cast<std::size_t>(memory.layout().pages_for(sequence.cursor().committed.tokens));
  for (const PageId page : sequence.pages().first(pages)) {
    const auto regions = memory.pages().page_memory(page, memory.layout().page_tokens);
    for (std::size_t i = 0; i < regions.size(); ++i) {
      (spaces[i] == &memory.space() ? parts.inside : parts.on_host).push_back(regions[i]);
    }
  }
  return parts;
}

// Between the regions and the same numbers one behind the other.
std::vector<MemoryCopy> copies(const std::vector<MemoryRegion>& regions, std::byte* packed,
                               bool to_regions) {
  std::vector<MemoryCopy> all;
  for (const MemoryRegion& region : regions) {
    const MemoryRegion at{packed, region.bytes, region.count, region.bytes};
    if (region.total() > 0) all.push_back(to_regions ? copy_of(at, region) : copy_of(region, at));
    packed += region.total();
  }
  return all;
}

}  // namespace

std::int64_t ParkedSequence::bytes_of(const SequenceMemory& memory, const Residence& sequence) {
  const Parts parts = parts_of(memory, sequence);
  return static_cast<std::int64_t>(sum_of(parts.inside) + sum_of(parts.on_host));
}

Result<std::optional<ParkedSequence>> ParkedSequence::park(SequenceMemory& memory,
                                                           const Residence& sequence,
                                                           HostArena& arena) {
  const Parts parts = parts_of(memory, sequence);
  ParkedSequence parked;
  parked.on_host_.resize(sum_of(parts.on_host));
  parked.data_ = arena.allocate(sum_of(parts.inside));
  if (parked.data_ == nullptr) return std::optional<ParkedSequence>();
  parked.arena_ = &arena;
  parked.bytes_ = static_cast<std::int64_t>(sum_of(parts.inside) + parked.on_host_.size());
  parked.cursor_ = sequence.cursor();
  const auto left = memory.space().fetch(copies(parts.inside, parked.data_, false));
  if (!left) return left.error();
  REPLAYSSM_TRY(memory.leaves(sequence, *left));
  REPLAYSSM_TRY(host_space().copy(copies(parts.on_host, parked.on_host_.data(), false)));
  return std::optional(std::move(parked));
}

Result<Residence> ParkedSequence::resume(SequenceMemory& memory) const {
  auto sequence = memory.admit(cursor_);
  if (!sequence) return sequence.error();
  const Parts parts = parts_of(memory, *sequence);
  const auto arrived = memory.space().send(copies(parts.inside, data_, true));
  if (!arrived) return arrived.error();
  REPLAYSSM_TRY(memory.arrives(*sequence, *arrived));
  auto* const on_host = const_cast<std::byte*>(on_host_.data());
  REPLAYSSM_TRY(host_space().copy(copies(parts.on_host, on_host, true)));
  return sequence;
}

ParkedSequence& ParkedSequence::operator=(ParkedSequence&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(cursor_, other.cursor_);
  std::swap(on_host_, other.on_host_);
  return *this;
}

ParkedSequence::~ParkedSequence() {
  if (data_ != nullptr) arena_->release(data_);
}

}  // namespace replayssm
