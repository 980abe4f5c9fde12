#include "cache/slot_pool.h"

namespace replayssm {

SlotPool::SlotPool(const SequenceLayout& layout, int slots, MemorySpace& space, Poison poison)
    : layout_(layout),
      poison_(poison),
      ids_("state slot", slots),
      storage_(space, static_cast<std::size_t>(slots * layout.slot_bytes())) {
  const MemoryRegion all = storage_.whole();
  fill_with(poison_, space, {&all, 1});
}

Result<SlotId> SlotPool::allocate(const PreferredIds<SlotId>& preferred) {
  const auto slot = ids_.allocate(preferred);
  if (!slot) return Error{fmt::format("state slots: all {} are in use", slots())};
  fill(*slot);
  return *slot;
}

Status SlotPool::retain(SlotId slot) { return ids_.retain(slot); }

Status SlotPool::release(SlotId slot) {
  const auto freed = ids_.release(slot);
  if (!freed) return freed.error();
  if (*freed) fill(slot);
  return {};
}

void SlotPool::fill(SlotId slot) {
  const auto bytes = static_cast<std::size_t>(layout_.slot_bytes());
  const MemoryRegion memory{storage_.data() + static_cast<std::size_t>(slot.value) * bytes, bytes};
  fill_with(poison_, storage_.space(), {&memory, 1});
}

StateView SlotPool::states(int layer) {
  StateView view;
  view.data = storage_.data() + layer * layout_.state_bytes();
  view.type = layout_.state_type;
  view.slot_stride = static_cast<std::size_t>(layout_.slot_bytes()) / size_of(layout_.state_type);
  view.slots = slots();
  return view;
}

ConvTailView SlotPool::conv_tails(int layer) {
  ConvTailView view;
  view.inputs = storage_.data() + layout_.linear_layers * layout_.state_bytes() +
                layer * layout_.tail_bytes();
  view.type = layout_.activation_type;
  view.slot_stride =
      static_cast<std::size_t>(layout_.slot_bytes()) / size_of(layout_.activation_type);
  view.slots = slots();
  view.channels = layout_.heads.channels();
  return view;
}

MemoryRegion SlotPool::memory(SlotId slot) const {
  return {storage_.data() + slot.value * layout_.slot_bytes(),
          static_cast<std::size_t>(layout_.slot_bytes())};
}

MemoryRegion SlotPool::tail_memory(SlotId slot) const {
  const auto bytes = static_cast<std::size_t>(layout_.tail_bytes());
  std::byte* first = storage_.data() + slot.value * layout_.slot_bytes() +
                     layout_.linear_layers * layout_.state_bytes();
  return {first, bytes, static_cast<std::size_t>(layout_.linear_layers), bytes};
}

}  // namespace replayssm
