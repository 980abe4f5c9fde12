#include "cache/sequence_image.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
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

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

// What becomes of the parts that are visited.
enum class Movement { none, read, write };

// A part of the pools, and the space that it is in.
struct PoolRegion {
  MemorySpace* space = nullptr;
  MemoryRegion memory;
};

// Regions of the pools where the host may touch them: the regions themselves if they are the host's
// or nothing is transferred, else copies of them, zero until they are read.
class HostRegions {
 public:
  HostRegions(Movement movement, std::span<const PoolRegion> regions) {
    std::size_t bytes = 0;
    const auto is_copied = [&](const PoolRegion& region) {
      return movement != Movement::none && !region.space->on_host();
    };
    for (const PoolRegion& region : regions) {
      host_.push_back(region.memory);
      if (is_copied(region)) bytes += region.memory.total();
    }
    copies_.resize(bytes);
    std::byte* at = copies_.data();
    for (std::size_t i = 0; i < regions.size(); ++i) {
      if (!is_copied(regions[i])) continue;
      MemoryRegion& region = host_[i];
      region.data = at;
      region.pitch = region.bytes;
      at += region.total();
      space_ = regions[i].space;  // there is one beside the host's
      reads_.push_back(copy_of(regions[i].memory, region));
      writes_.push_back(copy_of(region, regions[i].memory));
    }
  }

  Status read() { return reads_.empty() ? Status{} : space_->read(reads_); }
  Status write() { return writes_.empty() ? Status{} : space_->write(writes_); }
  std::span<const MemoryRegion> regions() const { return host_; }

 private:
  MemorySpace* space_ = nullptr;
  std::vector<MemoryRegion> host_;
  std::vector<MemoryCopy> reads_;
  std::vector<MemoryCopy> writes_;
  std::vector<std::byte> copies_;
};

// Calls visit(span of bytes) for the conv tails, records and conv inputs, in image order. `tails`
// and `rings` are regions of SlotPool::tail_memory() and RowPool::row_memory().
template <class Visit>
Status visit_row(const SequenceLayout& layout, const Cursor& cursor, const MemoryRegion& tails,
                 std::span<const MemoryRegion> rings, Visit&& visit) {
  const Depth t = cursor.committed;
  const Depth c = cursor.checkpoint;
  const std::size_t layers = index(layout.linear_layers);
  // With replay off the conv rings hold all that a next step needs, and tails are not kept.
  if (c.tokens > 0 && layout.recurrence == Recurrence::replay) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      REPLAYSSM_TRY(visit(std::span(tails.piece(layer), tails.bytes)));
    }
  }
  for (std::size_t layer = 0; layer < layers && layout.recurrence == Recurrence::replay; ++layer) {
    // The record of one head in one of the arrays, [heads, R, ...].
    const auto record = [&](std::size_t array, int heads, std::size_t head, Depth position) {
      const std::size_t ring_rows = index(layout.geometry.ring_rows());
      const std::size_t bytes = rings[array].bytes / (index(heads) * ring_rows);
      const std::size_t row = head * ring_rows + index(layout.geometry.ring_row(position));
      return std::span(rings[array].piece(layer) + row * bytes, bytes);
    };
    for (Depth i = c; i < t; i += 1) {
      for (std::size_t h = 0; h < index(layout.heads.key_heads); ++h) {
        REPLAYSSM_TRY(visit(record(0, layout.heads.key_heads, h, i)));
        REPLAYSSM_TRY(visit(record(1, layout.heads.key_heads, h, i)));
      }
      for (std::size_t h = 0; h < index(layout.heads.value_heads); ++h) {
        REPLAYSSM_TRY(visit(record(2, layout.heads.value_heads, h, i)));
        REPLAYSSM_TRY(visit(record(3, layout.heads.value_heads, h, i)));
      }
    }
  }
  const int oldest = std::max(
      0, std::min(t.tokens - 4, c.tokens + layout.geometry.fold_block() - (kConvWidth - 1)));
  const MemoryRegion& conv = rings.back();
  const std::size_t bytes = conv.bytes / index(layout.geometry.conv_rows());
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (Depth i{oldest}; i < t; i += 1) {
      const std::size_t row = index(layout.geometry.conv_row(i));
      REPLAYSSM_TRY(visit(std::span(conv.piece(layer) + row * bytes, bytes)));
    }
  }
  return {};
}

// The same for keys and values of positions [first, end), which lie in one page; `page` are the
// regions of PagePool::page_memory().
template <class Visit>
Status visit_page(const SequenceLayout& layout, int first, int end,
                  std::span<const MemoryRegion> page, Visit&& visit) {
  for (int i = first; i < end; ++i) {
    const std::size_t kinds = i < layout.draft.first_position ? 1 : page.size();
    for (const MemoryRegion& layers : page.first(kinds)) {
      const std::size_t bytes = layers.bytes / index(layout.page_tokens);
      for (std::size_t piece = 0; piece < layers.count; ++piece) {
        REPLAYSSM_TRY(
            visit(std::span(layers.piece(piece) + index(i % layout.page_tokens) * bytes, bytes)));
      }
    }
  }
  return {};
}

// Calls visit(span of bytes) for every stored part but the states, in image order; stops at the
// first error. Parts are read from the pools before they are visited, or written to them after.
template <class Visit>
Status visit_parts(SequenceMemory& memory, const Residence& sequence, Movement movement,
                   Visit&& visit) {
  const auto at_host = [&](std::span<const PoolRegion> regions, auto&& visit_regions) -> Status {
    HostRegions host(movement, regions);
    if (movement == Movement::read) REPLAYSSM_TRY(host.read());
    REPLAYSSM_TRY(visit_regions(host.regions()));
    return movement == Movement::write ? host.write() : Status{};
  };
  const SequenceLayout& layout = memory.layout();
  const auto rings = memory.rows().row_memory(sequence.row());
  MemorySpace* const space = &memory.space();
  std::vector<PoolRegion> parts{{space, memory.slots().tail_memory(sequence.base())}};
  for (const MemoryRegion& ring : rings) parts.push_back({space, ring});
  REPLAYSSM_TRY(at_host(parts, [&](std::span<const MemoryRegion> host) {
    return visit_row(layout, sequence.cursor(), host.front(), host.subspan(1), visit);
  }));

  // So many at once that a transfer is worth its start, and copies stay small.
  constexpr std::size_t kPagesAtOnce = 64;
  const int t = sequence.cursor().committed.tokens;
  const std::size_t pages = layout.pages_for(t);
  for (std::size_t begin = 0; begin < pages; begin += kPagesAtOnce) {
    const std::size_t end = std::min(pages, begin + kPagesAtOnce);
    std::vector<PoolRegion> regions;
    const auto spaces = memory.pages().page_spaces();
    for (std::size_t page = begin; page < end; ++page) {
      const auto each = memory.pages().page_memory(sequence.pages()[page], layout.page_tokens);
      for (std::size_t i = 0; i < each.size(); ++i) regions.push_back({spaces[i], each[i]});
    }
    const auto visit_pages = [&](std::span<const MemoryRegion> host) -> Status {
      for (std::size_t page = begin; page < end; ++page) {
        const int first = static_cast<int>(page) * layout.page_tokens;
        REPLAYSSM_TRY(visit_page(layout, first, std::min(t, first + layout.page_tokens),
                                 host.subspan(2 * (page - begin), 2), visit));
      }
      return {};
    };
    REPLAYSSM_TRY(at_host(regions, visit_pages));
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
  (void)visit_parts(memory, sequence, Movement::none, [&](std::span<std::byte> part) -> Status {
    bytes += part.size();
    return {};
  });
  return static_cast<std::int64_t>(bytes);
}

Status write_image(SequenceMemory& memory, const Residence& sequence, const LinearOps& ops,
                   ByteWriter& out) {
  REPLAYSSM_TRY(memory.follow_transfers(sequence));
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
  return visit_parts(memory, sequence, Movement::read, [&](std::span<std::byte> part) -> Status {
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
  REPLAYSSM_TRY(memory.follow_transfers(*sequence));
  if (cursor.checkpoint.tokens > 0) {
    std::vector<float> state(memory.layout().heads.state_elements());
    for (const StateView& view : memory.views().states) {
      REPLAYSSM_TRY(in.get_bytes(std::as_writable_bytes(std::span(state))));
      REPLAYSSM_TRY(ops.import_state(memory.layout().heads, view, sequence->base(), state));
    }
  }
  REPLAYSSM_TRY(visit_parts(memory, *sequence, Movement::write,
                            [&](std::span<std::byte> part) { return in.get_bytes(part); }));
  return sequence;
}

}  // namespace replayssm
