#include "cache/sequence_image.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace replayssm {
namespace {

// What must agree between the image and the pools, in the order it is written.
struct Format {
  std::string_view name;
  std::int32_t value;
};

using Formats = std::array<Format, 13>;

Formats formats(const SequenceLayout& layout, const LinearOps& ops) {
  return {{{"recurrence", static_cast<std::int32_t>(layout.recurrence)},
           {"fold block", layout.geometry.fold_block()},
           {"linear layers", layout.linear_layers},
           {"gate kind", static_cast<std::int32_t>(layout.heads.gate)},
           {"key heads", layout.heads.key_heads},
           {"value heads", layout.heads.value_heads},
           {"attention layers", layout.kv_layers()},
           {"KV row", layout.kv_heads * layout.head_dim},
           {"drafter's KV row", layout.draft.count * layout.draft.kv_heads * layout.draft.head_dim},
           {"state type", static_cast<std::int32_t>(layout.state_type)},
           {"gate form", static_cast<std::int32_t>(ops.gate_form())},
           {"record type", static_cast<std::int32_t>(layout.correction_type)},
           {"activation type", static_cast<std::int32_t>(layout.activation_type)}}};
}

std::span<std::byte> bytes_at(void* array, std::size_t type_size, std::size_t element,
                              std::size_t elements) {
  return {static_cast<std::byte*>(array) + element * type_size, elements * type_size};
}

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

// Calls visit(span of bytes) for every stored part but the states, in image order; stops at the
// first error.
template <class Visit>
Status visit_parts(SequenceMemory& memory, const Residence& sequence, Visit&& visit) {
  const SequenceLayout& layout = memory.layout();
  const SequenceViews& views = memory.views();
  const Depth t = sequence.cursor().committed;
  const Depth c = sequence.cursor().checkpoint;
  const std::size_t row = index(sequence.row().value);

  // With replay off the conv rings hold all that a next step needs, and tails are not kept.
  if (c.tokens > 0 && layout.recurrence == Recurrence::replay) {
    for (const ConvTailView& tail : views.conv_tails) {
      REPLAYSSM_TRY(visit(bytes_at(tail.inputs, size_of(tail.type),
                                   index(sequence.base().value) * tail.slot_stride,
                                   index(3 * tail.channels))));
    }
  }
  for (const RingView& ring : views.rings) {
    const std::size_t rows = index(ring.ring_rows);
    const std::size_t gate = index(layout.heads.gate_width());
    for (Depth i = c; i < t; i += 1) {
      const std::size_t r = index(layout.geometry.ring_row(i));
      for (std::size_t h = 0; h < index(layout.heads.key_heads); ++h) {
        const std::size_t record = (row * index(layout.heads.key_heads) + h) * rows + r;
        REPLAYSSM_TRY(
            visit(bytes_at(ring.keys, size_of(ring.key_type), record * kKeyDim, kKeyDim)));
        REPLAYSSM_TRY(visit(bytes_at(ring.key_scales, sizeof(float), record, 1)));
      }
      for (std::size_t h = 0; h < index(layout.heads.value_heads); ++h) {
        const std::size_t record = (row * index(layout.heads.value_heads) + h) * rows + r;
        REPLAYSSM_TRY(visit(bytes_at(ring.corrections, size_of(ring.correction_type),
                                     record * kValueDim, kValueDim)));
        REPLAYSSM_TRY(visit(bytes_at(ring.gates, sizeof(float), record * gate, gate)));
      }
    }
  }
  const int oldest = std::max(
      0, std::min(t.tokens - 4, c.tokens + layout.geometry.fold_block() - (kConvWidth - 1)));
  for (const ConvRingView& ring : views.conv_rings) {
    for (Depth i{oldest}; i < t; i += 1) {
      const std::size_t r = row * index(ring.conv_rows) + index(layout.geometry.conv_row(i));
      REPLAYSSM_TRY(visit(bytes_at(ring.inputs, size_of(ring.type), r * index(ring.channels),
                                   index(ring.channels))));
    }
  }
  for (int layer = 0; layer < layout.kv_layers(); ++layer) {
    const int first = layout.is_draft_layer(layer) ? layout.draft.first_position : 0;
    for (int i = first; i < t.tokens; ++i) {
      const PageId page = sequence.pages()[index(i / layout.page_tokens)];
      const int offset = i % layout.page_tokens;
      const std::size_t size = memory.pages().position_bytes(layer);
      REPLAYSSM_TRY(visit(std::span{memory.pages().keys_at(layer, page, offset), size}));
      REPLAYSSM_TRY(visit(std::span{memory.pages().values_at(layer, page, offset), size}));
    }
  }
  return {};
}

}  // namespace

std::int64_t image_bytes(SequenceMemory& memory, const Residence& sequence) {
  // The formats, t and c.
  std::size_t bytes = (std::tuple_size_v<Formats> + 2) * sizeof(std::int32_t);
  if (sequence.cursor().checkpoint.tokens > 0) {
    bytes += memory.views().states.size() * memory.layout().heads.state_elements() * sizeof(float);
  }
  // Counting fails nowhere.
  (void)visit_parts(memory, sequence, [&](std::span<std::byte> part) -> Status {
    bytes += part.size();
    return {};
  });
  return static_cast<std::int64_t>(bytes);
}

Status write_image(SequenceMemory& memory, const Residence& sequence, const LinearOps& ops,
                   ByteWriter& out) {
  for (const Format& format : formats(memory.layout(), ops)) out.put(format.value);
  out.put(sequence.cursor().committed.tokens);
  out.put(sequence.cursor().checkpoint.tokens);
  if (sequence.cursor().checkpoint.tokens > 0) {
    std::vector<float> state(memory.layout().heads.state_elements());
    for (const StateView& view : memory.views().states) {
      REPLAYSSM_TRY(ops.export_state(memory.layout().heads, view, sequence.base(), state));
      out.put_bytes(std::as_bytes(std::span(state)));
    }
  }
  return visit_parts(memory, sequence, [&](std::span<std::byte> part) -> Status {
    out.put_bytes(part);
    return {};
  });
}

Result<Residence> read_image(SequenceMemory& memory, const LinearOps& ops, ByteReader& in) {
  for (const Format& format : formats(memory.layout(), ops)) {
    std::int32_t value = 0;
    REPLAYSSM_TRY(in.get(value));
    if (value != format.value) {
      return refuse(fmt::format("serialised sequence: {}", format.name), value,
                    fmt::format("{}", format.value));
    }
  }
  Cursor cursor;
  REPLAYSSM_TRY(in.get(cursor.committed.tokens));
  REPLAYSSM_TRY(in.get(cursor.checkpoint.tokens));
  // From here on an error destroys the residence, which gives back all that it held.
  Result<Residence> sequence = memory.admit(cursor);
  if (!sequence) return sequence.error();
  if (cursor.checkpoint.tokens > 0) {
    std::vector<float> state(memory.layout().heads.state_elements());
    for (const StateView& view : memory.views().states) {
      REPLAYSSM_TRY(in.get_bytes(std::as_writable_bytes(std::span(state))));
      REPLAYSSM_TRY(ops.import_state(memory.layout().heads, view, sequence->base(), state));
    }
  }
  REPLAYSSM_TRY(visit_parts(memory, *sequence,
                            [&](std::span<std::byte> part) { return in.get_bytes(part); }));
  return sequence;
}

}  // namespace replayssm
