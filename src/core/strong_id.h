// Integers that mean different things have different types: a slot is not a row is not a page.
#pragma once

#include <compare>
#include <cstdint>

namespace replayssm {

// An index of one kind. Does not convert to or from other kinds or plain integers.
template <class Tag>
struct StrongId {
  std::int32_t value = -1;

  constexpr StrongId() = default;
  constexpr explicit StrongId(std::int32_t v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

// The storage of one checkpoint over all layers: recurrent state and conv tail.
using SlotId = StrongId<struct SlotTag>;
// A running sequence's place: its record rings, conv rings and cursor.
using RowIndex = StrongId<struct RowTag>;
// A fixed number of consecutive positions of keys and values over all attention layers.
using PageId = StrongId<struct PageTag>;
// A token id of the model's vocabulary.
using TokenId = std::int32_t;

// A row whose slot is the null slot takes part in no operation: it reads and writes no slot, ring
// or page, and its output rows are zero.
inline constexpr SlotId kNullSlot{-1};

}  // namespace replayssm
