// A sequence's memory on the host as it lay in a device's pools. The copies either way are
// transfers (memory_space.h), beside the device's other work; nobody waits for them but who gets
// the memory. Unlike an image (sequence_image.h) it fits these pools alone, holds whole rings and
// pages, and is never looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cache/host_arena.h"
#include "cache/sequence_memory.h"
#include "core/result.h"

namespace replayssm {

// Owns its part of an arena, which outlives it. Move-only.
class ParkedSequence {
 public:
  // Bytes of the arena and beside it that the sequence will take.
  static std::int64_t bytes_of(const SequenceMemory& memory, const Residence& sequence);

  // Starts the copies to the host; the sequence may be released at once, since whoever gets its
  // memory waits for them (SequenceMemory::ready()). Empty: the arena has no room. Precondition: it
  // has a row.
  static Result<std::optional<ParkedSequence>> park(SequenceMemory& memory,
                                                    const Residence& sequence, HostArena& arena);

  // Starts the copies back, into a sequence that continues where the parked one stood and waits for
  // them. Refused when the pools are full.
  Result<Residence> resume(SequenceMemory& memory) const;

  std::int64_t bytes() const { return bytes_; }

  ParkedSequence(ParkedSequence&& other) noexcept { *this = std::move(other); }
  ParkedSequence& operator=(ParkedSequence&& other) noexcept;
  ~ParkedSequence();

 private:
  ParkedSequence() = default;

  HostArena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Cursor cursor_;
  std::vector<std::byte> on_host_;  // what was on the host before: a drafter's part of the pages
};

}  // namespace replayssm
