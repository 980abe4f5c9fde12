#include "cache/row_pool.h"

#include <cstring>

namespace replayssm {
namespace {

// Bytes of one row in each array of one layer's record rings.
struct RingParts {
  std::int64_t keys, scales, corrections, gates;

  explicit RingParts(const SequenceLayout& layout) {
    const std::int64_t records = layout.geometry.ring_rows();
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

RowPool::RowPool(const SequenceLayout& layout, int rows, Poison poison)
    : layout_(layout),
      poison_(poison),
      ids_("row", rows),
      rings_(size(rows * layout.ring_bytes_per_row())),
      conv_rings_(size(rows * layout.conv_ring_bytes_per_row())),
      committed_(size(rows)),
      checkpoint_(size(rows)),
      base_(size(rows), kNullSlot),
      home_(size(rows), kNullSlot) {
  if (poison_ == Poison::on) {
    rings_.fill_bytes(kPoisonByte);
    conv_rings_.fill_bytes(kPoisonByte);
  }
}

template <class Visit>
void RowPool::visit_row(RowIndex row, Visit&& visit) {
  const auto part_of = [&](void* array, std::int64_t bytes) {
    visit(std::span(static_cast<std::byte*>(array) + row.value * bytes, size(bytes)));
  };
  const RingParts part(layout_);
  for (int layer = 0; layer < layout_.linear_layers; ++layer) {
    if (layout_.recurrence == Recurrence::replay) {
      const RingView ring = rings(layer);
      part_of(ring.keys, part.keys);
      part_of(ring.key_scales, part.scales);
      part_of(ring.corrections, part.corrections);
      part_of(ring.gates, part.gates);
    }
    part_of(conv_rings(layer).inputs, layout_.conv_ring_bytes_per_row() / layout_.linear_layers);
  }
}

Result<RowIndex> RowPool::allocate() {
  const auto row = ids_.allocate();
  if (!row) return Error{fmt::format("running requests: all {} rows are in use", rows())};
  return *row;
}

Status RowPool::release(RowIndex row) {
  const auto freed = ids_.release(row);
  if (!freed) return freed.error();
  const std::size_t r = size(row.value);
  committed_[r] = checkpoint_[r] = Depth{};
  base_[r] = home_[r] = kNullSlot;
  if (poison_ == Poison::on) {
    // No list of the parts: what gives a row back is a destructor, which may not run out of memory.
    visit_row(
        row, [](std::span<std::byte> part) { std::memset(part.data(), kPoisonByte, part.size()); });
  }
  return {};
}

std::int64_t RowPool::cursor_bytes() const { return rows() * layout_.cursor_bytes_per_row(); }

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
  view.inputs =
      conv_rings_.data() +
      std::int64_t{layer} * rows() * (layout_.conv_ring_bytes_per_row() / layout_.linear_layers);
  view.type = layout_.activation_type;
  view.rows = rows();
  view.conv_rows = layout_.geometry.conv_rows();
  view.channels = layout_.heads.channels();
  return view;
}

CursorView RowPool::cursors() {
  return {committed_.data(), checkpoint_.data(), base_.data(), home_.data(), rows()};
}

std::vector<std::span<std::byte>> RowPool::row_memory(RowIndex row) {
  std::vector<std::span<std::byte>> parts;
  visit_row(row, [&](std::span<std::byte> part) { parts.push_back(part); });
  return parts;
}

}  // namespace replayssm
