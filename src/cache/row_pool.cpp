#include "cache/row_pool.h"

namespace replayssm {
namespace {

// Bytes of one row in each array of one layer's record rings.
struct RingParts {
  std::int64_t keys, scales, corrections, gates;

  explicit RingParts(const SequenceLayout& layout) {
    const std::int64_t records =
        layout.recurrence == Recurrence::replay ? layout.geometry.ring_rows() : 0;
    const HeadShape& heads = layout.heads;
    keys = records * heads.key_heads * kKeyDim *
           static_cast<std::int64_t>(size_of(layout.activation_type));
    scales = records * heads.key_heads * static_cast<std::int64_t>(sizeof(float));
    corrections = records * heads.value_heads * kValueDim *
                  static_cast<std::int64_t>(size_of(layout.correction_type));
    gates =
        records * heads.value_heads * heads.gate_width() * static_cast<std::int64_t>(sizeof(float));
  }
  std::int64_t sum() const { return keys + scales + corrections + gates; }
};

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

RowPool::RowPool(const SequenceLayout& layout, int rows, MemorySpace& space, Poison poison)
    : layout_(layout),
      poison_(poison),
      ids_("row", rows),
      rings_(space, size(rows * layout.ring_bytes_per_row())),
      conv_rings_(space, size(rows * layout.conv_ring_bytes_per_row())),
      cursors_(space, size((rows + 1) * layout.cursor_bytes_per_row())) {
  const MemoryRegion rings[] = {rings_.whole(), conv_rings_.whole()};
  fill_with(poison_, space, rings);
  // t and c are zero. All bits set is the null slot.
  static_assert(kNullSlot.value == -1);
  const std::size_t slots = cursors_.bytes() / 2;
  const MemoryRegion null_slots{cursors_.data() + slots, slots};
  if (Status status = space.fill({&null_slots, 1}, 0xff); !status) {
    throw OutOfMemory(status.error());
  }
}

Result<RowIndex> RowPool::allocate(const PreferredIds<RowIndex>& preferred) {
  const auto row = ids_.allocate(preferred);
  if (!row) return Error{fmt::format("running requests: all {} rows are in use", rows())};
  return *row;
}

Status RowPool::release(RowIndex row) {
  const auto freed = ids_.release(row);
  if (!freed) return freed.error();
  fill_with(poison_, rings_.space(), row_memory(row));
  return set_cursor(row, {}, kNullSlot, kNullSlot);
}

Status RowPool::set_cursor(RowIndex row, const Cursor& cursor, SlotId base, SlotId home) {
  const std::int32_t values[] = {cursor.committed.tokens, cursor.checkpoint.tokens, base.value,
                                 home.value};
  const CursorView view = cursors();
  const MemoryCopy copy{reinterpret_cast<const std::byte*>(values),
                        sizeof(std::int32_t),
                        reinterpret_cast<std::byte*>(view.committed + row.value),
                        size(view.rows) * sizeof(std::int32_t),
                        sizeof(std::int32_t),
                        std::size(values)};
  return cursors_.space().write({&copy, 1});
}

Status RowPool::set_home(RowIndex row, SlotId home) {
  const MemoryCopy copy{reinterpret_cast<const std::byte*>(&home), 0,
                        reinterpret_cast<std::byte*>(cursors().home + row.value), 0, sizeof(home)};
  return cursors_.space().write({&copy, 1});
}

RingView RowPool::rings(int layer) {
  const RingParts part(layout_);
  std::byte* at = rings_.data() + std::int64_t{layer} * rows() * part.sum();
  RingView view;
  view.keys = at;
  at += rows() * part.keys;
  view.key_scales = reinterpret_cast<float*>(at);
  at += rows() * part.scales;
  view.corrections = at;
  at += rows() * part.corrections;
  view.gates = reinterpret_cast<float*>(at);
  view.key_type = layout_.activation_type;
  view.correction_type = layout_.correction_type;
  view.rows = rows();
  view.ring_rows = layout_.geometry.ring_rows();
  return view;
}

ConvRingView RowPool::conv_rings(int layer) {
  ConvRingView view;
  view.inputs = conv_rings_.data() + std::int64_t{layer} * rows() * layout_.conv_ring_bytes();
  view.type = layout_.activation_type;
  view.rows = rows();
  view.conv_rows = layout_.geometry.conv_rows();
  view.channels = layout_.heads.channels();
  return view;
}

CursorView RowPool::cursors() {
  static_assert(sizeof(Depth) == sizeof(std::int32_t) && sizeof(SlotId) == sizeof(std::int32_t));
  CursorView view;
  view.rows = rows() + 1;
  view.null_row = null_row();
  view.committed = reinterpret_cast<Depth*>(cursors_.data());
  view.checkpoint = view.committed + view.rows;
  view.base = reinterpret_cast<SlotId*>(view.checkpoint + view.rows);
  view.home = view.base + view.rows;
  return view;
}

std::array<MemoryRegion, RowPool::kRingArrays> RowPool::row_memory(RowIndex row) const {
  const RingParts part(layout_);
  const std::size_t layers = size(layout_.linear_layers);
  std::byte* array = rings_.data();
  const auto ring = [&](std::int64_t bytes) {
    const MemoryRegion region{array + row.value * bytes, size(bytes), layers,
                              size(rows() * part.sum())};
    array += rows() * bytes;
    return region;
  };
  const std::int64_t conv = layout_.conv_ring_bytes();
  return {
      ring(part.keys), ring(part.scales), ring(part.corrections), ring(part.gates),
      MemoryRegion{conv_rings_.data() + row.value * conv, size(conv), layers, size(rows() * conv)}};
}

}  // namespace replayssm
