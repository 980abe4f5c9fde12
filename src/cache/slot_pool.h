// The storage of checkpoints: recurrent states and conv tails, by slot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/id_pool.h"
#include "cache/poison.h"
#include "cache/sequence_layout.h"
#include "core/memory_space.h"
#include "core/result.h"
#include "ops/views.h"

namespace replayssm {

// Slots over all linear layers, slot-major: the states of the layers, then their conv tails. A slot
// with one holder may be written by it; a shared slot is read-only for all. The memory of a slot
// holds nothing in particular when it is allocated. Not thread-safe.
class SlotPool {
 public:
  // Throws OutOfMemory. The space outlives the pool.
  SlotPool(const SequenceLayout& layout, int slots, MemorySpace& space,
           Poison poison = Poison::off);

  // A slot with one holder, as IdPool::allocate(). Refused with the numbers when all are held.
  Result<SlotId> allocate(const PreferredIds<SlotId>& preferred = {});
  // One holder more or less; refused for a free slot. Memory is reused after the last release.
  Status retain(SlotId slot);
  Status release(SlotId slot);

  int references(SlotId slot) const { return ids_.references(slot); }
  bool shared(SlotId slot) const { return references(slot) > 1; }
  int slots() const { return ids_.size(); }
  int free() const { return ids_.free(); }
  int used() const { return ids_.used(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(storage_.bytes()); }

  // One linear layer's part. Valid as long as the pool.
  StateView states(int layer);
  ConvTailView conv_tails(int layer);
  // One slot: states, then conv tails.
  MemoryRegion memory(SlotId slot) const;
  // One slot's conv tails, a piece a layer.
  MemoryRegion tail_memory(SlotId slot) const;

 private:
  void fill(SlotId slot);

  SequenceLayout layout_;
  Poison poison_;
  IdPool<SlotId> ids_;
  SpaceBuffer storage_;  // [slots, slot_bytes]
};

}  // namespace replayssm
