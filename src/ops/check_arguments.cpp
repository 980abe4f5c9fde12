#include "ops/check_arguments.h"

#include <algorithm>
#include <string>

#include "replay/cursor.h"

namespace replayssm {
namespace {

Status present(std::string_view field, const void* pointer) {
  if (pointer == nullptr) return refuse(field, "null", "memory");
  return {};
}

Status one_of(std::string_view field, DType type, std::span<const DType> accepted) {
  if (std::find(accepted.begin(), accepted.end(), type) != accepted.end()) return {};
  std::string names;
  for (DType each : accepted) {
    if (!names.empty()) names += " or ";
    names += name_of(each);
  }
  return refuse(field, name_of(type), names);
}

// Whether the step writes a checkpoint of this row to its home slot.
bool writes_home(const Cursor& cursor, int tokens, StepKind kind, const FoldGeometry& geometry) {
  switch (kind) {
    case StepKind::packed:
      return true;
    case StepKind::window:
      return fold_due(cursor, geometry);
    case StepKind::chunk:
      return blocks_folded_by_chunk(cursor, tokens, geometry) > 0;
  }
  return false;
}

Status slot_in_range(std::string_view field, SlotId slot, int slots) {
  if (slot.value < 0 || slot.value >= slots) {
    return refuse(field, slot.value, fmt::format("a slot of [0, {})", slots));
  }
  return {};
}

Cursor cursor_of(const CursorView& cursors, RowIndex row) {
  return {cursors.committed[row.value], cursors.checkpoint[row.value]};
}

}  // namespace

void ArgumentCheck::Marks::begin(int size) {
  if (marked_.size() < static_cast<std::size_t>(size)) marked_.resize(size, 0);
  if (++round_ == 0) {
    std::fill(marked_.begin(), marked_.end(), 0u);
    round_ = 1;
  }
}

bool ArgumentCheck::Marks::add(std::int32_t index) {
  if (marked_[index] == round_) return false;
  marked_[index] = round_;
  return true;
}

bool ArgumentCheck::Marks::holds(std::int32_t index) const { return marked_[index] == round_; }

Status ArgumentCheck::row_once(RowIndex row, const CursorView& cursors, int rows) {
  if (row != RowIndex{} && row == cursors.null_row) return {};
  if (row.value < 0 || row.value >= rows) {
    return refuse("row", row.value, fmt::format("a row of [0, {})", rows));
  }
  if (!rows_.add(row.value)) return refuse("row", row.value, "each row at most once");
  return {};
}

Status ArgumentCheck::rows(std::span<const RowTokens> rows, const CursorView& cursors,
                           int memory_rows, StepKind kind, const FoldGeometry& geometry) {
  REPLAYSSM_TRY(present("cursors.committed", cursors.committed));
  REPLAYSSM_TRY(present("cursors.checkpoint", cursors.checkpoint));
  REPLAYSSM_TRY(present("cursors.base", cursors.base));
  REPLAYSSM_TRY(present("cursors.home", cursors.home));
  rows_.begin(cursors.rows);
  for (const RowTokens& row : rows) {
    REPLAYSSM_TRY(row_once(row.row, cursors, std::min(cursors.rows, memory_rows)));
    if (row.first_token < 0) return refuse("first_token", row.first_token, "at least 0");
    const int most = kind == StepKind::window ? geometry.window_max() : 1 << 28;
    if (row.tokens < 1 || row.tokens > most) {
      return refuse("tokens", row.tokens,
                    kind == StepKind::window ? fmt::format("1 to {} in a window", most)
                                             : std::string("at least 1"));
    }
    if (kind != StepKind::packed && (row.phase == Phase::prefill) != (kind == StepKind::chunk)) {
      return refuse("phase", row.phase == Phase::prefill ? "prefill" : "decode or verify",
                    kind == StepKind::chunk ? "prefill rows in a chunk operation"
                                            : "decode or verify rows in a window operation");
    }
    if (cursors_ == CursorMemory::device) continue;
    if (cursors.base[row.row.value] == kNullSlot) continue;
    const Cursor cursor = cursor_of(cursors, row.row);
    if (cursor.committed.tokens < 0) {
      return refuse("cursors.committed", cursor.committed.tokens, "at least 0");
    }
    if (kind == StepKind::packed) continue;
    if (cursor.checkpoint.tokens < 0 || cursor.checkpoint.tokens % geometry.fold_block() != 0) {
      return refuse("cursors.checkpoint", cursor.checkpoint.tokens,
                    fmt::format("a multiple of the fold block {}", geometry.fold_block()));
    }
    if (cursor.pending() < 0 || cursor.pending() > geometry.pending_max()) {
      return refuse("committed - checkpoint", cursor.pending(),
                    fmt::format("0 to {}", geometry.pending_max()));
    }
  }
  return {};
}

Status ArgumentCheck::slots(std::span<const RowTokens> rows, const CursorView& cursors, int slots,
                            StepKind kind, const FoldGeometry& geometry) {
  if (cursors_ == CursorMemory::device) return {};
  bases_.begin(slots);
  homes_.begin(slots);
  for (const RowTokens& row : rows) {
    const SlotId base = cursors.base[row.row.value];
    if (base == kNullSlot) continue;
    REPLAYSSM_TRY(slot_in_range("base slot", base, slots));
    const Cursor cursor = cursor_of(cursors, row.row);
    if (!writes_home(cursor, row.tokens, kind, geometry)) continue;
    const SlotId home = cursors.home[row.row.value];
    REPLAYSSM_TRY(slot_in_range("home slot", home, slots));
    if (!homes_.add(home.value)) {
      return refuse("home slot", home.value, "a slot that one row alone writes");
    }
  }
  for (const RowTokens& row : rows) {
    const SlotId base = cursors.base[row.row.value];
    if (base == kNullSlot) continue;
    const Depth read_depth = kind == StepKind::packed ? cursors.committed[row.row.value]
                                                      : cursors.checkpoint[row.row.value];
    if (read_depth.tokens == 0) continue;
    const bool in_place = cursors.home[row.row.value] == base &&
                          writes_home(cursor_of(cursors, row.row), row.tokens, kind, geometry);
    const bool first = bases_.add(base.value);
    if (homes_.holds(base.value) && (!in_place || !first)) {
      return refuse("home slot", base.value, "a slot that no other row reads");
    }
  }
  return {};
}

Status ArgumentCheck::states(const HeadShape& shape, const StateView& states) const {
  REPLAYSSM_TRY(present("states.data", states.data));
  REPLAYSSM_TRY(one_of("states.type", states.type, state_types_));
  if (states.slot_stride < shape.state_elements()) {
    return refuse("states.slot_stride", states.slot_stride,
                  fmt::format("at least {}", shape.state_elements()));
  }
  return {};
}

Status ArgumentCheck::rings(const RingView& rings, const FoldGeometry& geometry) const {
  REPLAYSSM_TRY(present("rings.keys", rings.keys));
  REPLAYSSM_TRY(present("rings.key_scales", rings.key_scales));
  REPLAYSSM_TRY(present("rings.corrections", rings.corrections));
  REPLAYSSM_TRY(present("rings.gates", rings.gates));
  REPLAYSSM_TRY(one_of("rings.key_type", rings.key_type, key_types_));
  REPLAYSSM_TRY(one_of("rings.correction_type", rings.correction_type, correction_types_));
  if (rings.ring_rows != geometry.ring_rows()) {
    return refuse("rings.ring_rows", rings.ring_rows,
                  fmt::format("{}, as the geometry says", geometry.ring_rows()));
  }
  return {};
}

Status ArgumentCheck::step(const StepArgs& args, StepKind kind) {
  REPLAYSSM_TRY(check(args.shape));
  if (args.rows.empty()) return {};
  REPLAYSSM_TRY(states(args.shape, args.states));
  if (kind != StepKind::packed) REPLAYSSM_TRY(rings(args.rings, args.geometry));
  if (activations_ == DType::bf16) {
    REPLAYSSM_TRY(present("qkv_bf16", args.qkv_bf16));
  } else {
    REPLAYSSM_TRY(present("qkv", args.qkv));
  }
  REPLAYSSM_TRY(present("gate", args.gate));
  REPLAYSSM_TRY(present("beta", args.beta));
  REPLAYSSM_TRY(present("out", args.out));
  const int memory_rows = kind == StepKind::packed ? args.cursors.rows : args.rings.rows;
  REPLAYSSM_TRY(rows(args.rows, args.cursors, memory_rows, kind, args.geometry));
  return slots(args.rows, args.cursors, args.states.slots, kind, args.geometry);
}

Status ArgumentCheck::fold(const FoldArgs& args) {
  REPLAYSSM_TRY(check(args.shape));
  if (args.states.size() != args.rings.size()) {
    return refuse("rings", args.rings.size(),
                  fmt::format("one per layer of states ({})", args.states.size()));
  }
  for (std::size_t layer = 0; layer < args.states.size(); ++layer) {
    REPLAYSSM_TRY(states(args.shape, args.states[layer]));
    REPLAYSSM_TRY(rings(args.rings[layer], args.geometry));
  }
  if (args.states.empty()) return {};
  const int slots = args.states[0].slots;
  homes_.begin(slots);
  for (const FoldRow& row : args.rows) {
    if (row.source == kNullSlot) continue;
    if (row.row.value < 0 || row.row.value >= args.rings[0].rows) {
      return refuse("row", row.row.value, fmt::format("a row of [0, {})", args.rings[0].rows));
    }
    if (row.from.tokens < 0 || row.from.tokens % args.geometry.fold_block() != 0) {
      return refuse("from", row.from.tokens,
                    fmt::format("a multiple of the fold block {}", args.geometry.fold_block()));
    }
    if (row.records < 0 || row.records > args.geometry.ring_rows()) {
      return refuse("records", row.records, fmt::format("0 to {}", args.geometry.ring_rows()));
    }
    REPLAYSSM_TRY(slot_in_range("source slot", row.source, slots));
    if (!row.buffer.empty()) {
      const std::size_t wanted = args.states.size() * args.shape.state_elements();
      if (row.buffer.size() != wanted)
        return refuse("buffer", row.buffer.size(), fmt::format("{} elements", wanted));
      continue;
    }
    REPLAYSSM_TRY(slot_in_range("destination slot", row.destination, slots));
    if (!homes_.add(row.destination.value)) {
      return refuse("destination slot", row.destination.value, "a slot that one row alone writes");
    }
  }
  for (const FoldRow& row : args.rows) {
    if (row.source == kNullSlot || row.from.tokens == 0 || !homes_.holds(row.source.value))
      continue;
    if (!row.buffer.empty() || row.destination != row.source) {
      return refuse("destination slot", row.source.value, "a slot that no other row reads");
    }
  }
  return {};
}

Status ArgumentCheck::advance(const AdvanceArgs& args) {
  if (args.accepted.size() != args.rows.size()) {
    return refuse("accepted", args.accepted.size(),
                  fmt::format("one entry per row ({})", args.rows.size()));
  }
  rows_.begin(args.cursors.rows);
  for (std::size_t i = 0; i < args.rows.size(); ++i) {
    const RowTokens& row = args.rows[i];
    REPLAYSSM_TRY(row_once(row.row, args.cursors, args.cursors.rows));
    if (row.tokens < 1) return refuse("tokens", row.tokens, "at least 1");
    const bool chunk = row.phase == Phase::prefill;
    if (args.accepted[i] < (chunk ? row.tokens : 0) || args.accepted[i] > row.tokens) {
      return refuse("accepted", args.accepted[i],
                    chunk ? fmt::format("{}, all tokens of the chunk", row.tokens)
                          : fmt::format("0 to {}", row.tokens));
    }
  }
  return {};
}

Status ArgumentCheck::conv(const ConvArgs& args, StepKind kind) {
  if (args.rows.empty()) return {};
  static constexpr DType kTypes[] = {DType::f32, DType::bf16};
  REPLAYSSM_TRY(present("rings.inputs", args.rings.inputs));
  REPLAYSSM_TRY(one_of("rings.type", args.rings.type, kTypes));
  REPLAYSSM_TRY(one_of("round_to", args.round_to, kTypes));
  REPLAYSSM_TRY(present("weight", args.weight));
  if (activations_ == DType::bf16) {
    REPLAYSSM_TRY(present("input_bf16", args.input_bf16));
    if (args.out_bf16 == nullptr) REPLAYSSM_TRY(present("out", args.out));
  } else {
    REPLAYSSM_TRY(present("input", args.input));
    REPLAYSSM_TRY(present("out", args.out));
  }
  if (args.rings.channels < 1) return refuse("rings.channels", args.rings.channels, "at least 1");
  if (args.rings.conv_rows != args.geometry.conv_rows()) {
    return refuse("rings.conv_rows", args.rings.conv_rows,
                  fmt::format("{}, as the geometry says", args.geometry.conv_rows()));
  }
  const bool packed = args.recurrence == Recurrence::packed;
  REPLAYSSM_TRY(rows(args.rows, args.cursors, args.rings.rows, packed ? StepKind::packed : kind,
                     args.geometry));
  if (packed) return {};
  // On a device any row may be one that writes a tail.
  if (cursors_ == CursorMemory::device) return tails(args.tails, args.rings);
  for (const RowTokens& row : args.rows) {
    if (args.cursors.base[row.row.value] == kNullSlot) continue;
    if (!writes_home(cursor_of(args.cursors, row.row), row.tokens, kind, args.geometry)) continue;
    REPLAYSSM_TRY(tails(args.tails, args.rings));
    REPLAYSSM_TRY(slot_in_range("home slot", args.cursors.home[row.row.value], args.tails.slots));
  }
  return {};
}

Status ArgumentCheck::tails(const ConvTailView& tails, const ConvRingView& rings) const {
  REPLAYSSM_TRY(present("tails.inputs", tails.inputs));
  if (tails.type != rings.type) {
    return refuse("tails.type", name_of(tails.type), name_of(rings.type));
  }
  if (tails.channels != rings.channels) {
    return refuse("tails.channels", tails.channels, fmt::format("{}, as the ring", rings.channels));
  }
  const std::size_t least = static_cast<std::size_t>(3) * rings.channels;
  if (tails.slot_stride < least) {
    return refuse("tails.slot_stride", tails.slot_stride, fmt::format("at least {}", least));
  }
  return {};
}

Status ArgumentCheck::gates(const GateArgs& args) {
  REPLAYSSM_TRY(check(args.shape));
  if (args.tokens < 0) return refuse("tokens", args.tokens, "at least 0");
  REPLAYSSM_TRY(present("a", args.a));
  REPLAYSSM_TRY(present("b", args.b));
  REPLAYSSM_TRY(present("a_log", args.a_log));
  REPLAYSSM_TRY(present("dt_bias", args.dt_bias));
  REPLAYSSM_TRY(present("gate", args.gate));
  REPLAYSSM_TRY(present("beta", args.beta));
  if (args.lower_bound > 0) return refuse("lower_bound", args.lower_bound, "0 or less");
  if (args.lower_bound < 0 && !args.shape.gate_has_bound()) {
    return refuse("lower_bound", args.lower_bound, "0 with a gate that has no lower bound");
  }
  return {};
}

Status ArgumentCheck::transfer(const HeadShape& shape, const StateView& states, SlotId slot,
                               std::size_t elements) {
  REPLAYSSM_TRY(check(shape));
  REPLAYSSM_TRY(this->states(shape, states));
  REPLAYSSM_TRY(slot_in_range("slot", slot, states.slots));
  if (elements != shape.state_elements()) {
    return refuse("elements", elements, fmt::format("{}", shape.state_elements()));
  }
  return {};
}

}  // namespace replayssm
