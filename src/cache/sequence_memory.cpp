#include "cache/sequence_memory.h"

#include <array>
#include <cassert>
#include <utility>

namespace replayssm {
namespace {

// Giving back what a Residence holds cannot fail: the type holds each thing once.
void expect_ok([[maybe_unused]] const Status& status) { assert(status.ok()); }

}  // namespace

Residence::~Residence() {
  if (memory_ != nullptr) memory_->release(*this);
}

void Residence::swap(Residence& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(row_, other.row_);
  std::swap(cursor_, other.cursor_);
  std::swap(base_, other.base_);
  std::swap(home_, other.home_);
  pages_.swap(other.pages_);
  std::swap(waits_for_, other.waits_for_);
}

Result<std::unique_ptr<SequenceMemory>> SequenceMemory::make(const SequenceLayout& layout,
                                                             const PoolSizes& sizes,
                                                             MemorySpace& space, Poison poison) {
  try {
    return std::make_unique<SequenceMemory>(layout, sizes, space, poison);
  } catch (const OutOfMemory& refused) {
    return refused.error();
  }
}

SequenceMemory::SequenceMemory(const SequenceLayout& layout, const PoolSizes& sizes,
                               MemorySpace& space, Poison poison)
    : space_(space),
      poison_(poison),
      layout_(layout),
      slots_(layout, sizes.slots, space, poison),
      rows_(layout, sizes.rows, space, poison),
      pages_(layout, sizes.pages, space, poison) {
  newest_.of_slot.resize(static_cast<std::size_t>(sizes.slots));
  newest_.of_row.resize(static_cast<std::size_t>(sizes.rows));
  newest_.of_page.resize(static_cast<std::size_t>(sizes.pages));
  views_.cursors = rows_.cursors();
  for (int layer = 0; layer < layout.linear_layers; ++layer) {
    views_.states.push_back(slots_.states(layer));
    views_.conv_tails.push_back(slots_.conv_tails(layer));
    views_.conv_rings.push_back(rows_.conv_rings(layer));
    if (layout.recurrence == Recurrence::replay) views_.rings.push_back(rows_.rings(layer));
  }
  for (int layer = 0; layer < layout.attention_layers; ++layer) {
    views_.kv.push_back(pages_.kv(layer));
  }
}

std::int64_t SequenceMemory::bytes() const {
  return slots_.bytes() + rows_.ring_bytes() + rows_.conv_ring_bytes() + rows_.cursor_bytes() +
         pages_.bytes();
}

Result<Residence> SequenceMemory::admit(const Cursor& cursor) {
  const int t = cursor.committed.tokens;
  const int c = cursor.checkpoint.tokens;
  if (t < 0 || c < 0 || c > t) {
    return refuse("cursor", fmt::format("(t {}, c {})", t, c), "0 <= c <= t");
  }
  if (layout_.recurrence == Recurrence::packed) {
    if (c != t) return refuse("cursor", fmt::format("(t {}, c {})", t, c), "c = t with replay off");
  } else if (c % layout_.geometry.fold_block() != 0 ||
             cursor.pending() > layout_.geometry.pending_max()) {
    return refuse("cursor", fmt::format("(t {}, c {})", t, c),
                  fmt::format("c a multiple of {} and at most {} pending tokens",
                              layout_.geometry.fold_block(), layout_.geometry.pending_max()));
  }
  const int pages = layout_.pages_for(t);
  if (pages > pages_.free()) {
    return Error{fmt::format("KV pages: {} are needed, {} of {} are free", pages, pages_.free(),
                             pages_.pages())};
  }
  if (slots_.free() == 0) {
    return Error{fmt::format("state slots: all {} are in use", slots_.slots())};
  }
  const auto row = rows_.allocate(idle());
  if (!row) return row.error();

  Residence sequence;
  sequence.memory_ = this;
  sequence.row_ = *row;
  sequence.cursor_ = cursor;
  wait_for(*row, sequence);
  sequence.base_ = sequence.home_ = slots_.allocate(idle()).value();
  wait_for(sequence.base_, sequence);
  for (int i = 0; i < pages; ++i) add_page(sequence);
  REPLAYSSM_TRY(publish(sequence));
  return sequence;
}

bool SequenceMemory::can_fork_at(const Residence& parent, Depth committed) const {
  // The state before the first token is not stored; what was folded since cannot be undone.
  if (committed.tokens <= 0) return committed.tokens == 0 && parent.cursor_.checkpoint.tokens == 0;
  return resume_depth(parent.cursor_, committed.tokens, layout_.recurrence == Recurrence::replay) ==
         committed;
}

Result<Residence> SequenceMemory::fork_at(const Residence& parent, Depth committed) {
  const Cursor& cursor = parent.cursor_;
  if (!can_fork_at(parent, committed)) {
    return refuse("fork: tokens", committed.tokens,
                  layout_.recurrence == Recurrence::packed
                      ? fmt::format("{}", cursor.committed.tokens)
                      : fmt::format("{}, {} or {}", cursor.committed.tokens,
                                    cursor.committed.tokens - 1, cursor.checkpoint.tokens));
  }
  if (pages_copied(committed) > pages_.free()) {
    return Error{fmt::format("KV pages: all {} are in use, a fork needs one", pages_.pages())};
  }
  const auto row = rows_.allocate(idle());
  if (!row) return row.error();

  Residence child;
  child.memory_ = this;
  child.row_ = *row;
  child.cursor_ = {committed,
                   layout_.recurrence == Recurrence::packed ? committed : cursor.checkpoint};
  child.base_ = child.home_ = parent.base_;
  expect_ok(slots_.retain(child.base_));
  wait_for(*row, child);
  REPLAYSSM_TRY(share_pages(parent, committed.tokens, child));
  if (parent.has_row()) {
    const auto from = rows_.row_memory(parent.row_);
    const auto to = rows_.row_memory(child.row_);
    std::array<MemoryCopy, RowPool::kRingArrays> copies;
    for (std::size_t i = 0; i < copies.size(); ++i) copies[i] = copy_of(from[i], to[i]);
    REPLAYSSM_TRY(copy_to(child, parent, copies));
  }
  // The parent's conv ring need not reach back to its checkpoint; the slot has what is needed.
  const bool at_end = parent.has_row() && committed == cursor.committed;
  if (committed == child.cursor_.checkpoint && committed.tokens > 0 && !at_end) {
    REPLAYSSM_TRY(load_conv_tail(child, parent));
  }
  REPLAYSSM_TRY(publish(child));
  return child;
}

Result<Residence> SequenceMemory::checkpoint_of(const Residence& sequence) {
  const Depth checkpoint = sequence.cursor_.checkpoint;
  if (layout_.recurrence == Recurrence::packed || checkpoint.tokens == 0) {
    return refuse("checkpoint", checkpoint.tokens, "a depth above 0, with replay on");
  }
  if (pages_copied(checkpoint) > pages_.free()) {
    return Error{
        fmt::format("KV pages: all {} are in use, a checkpoint needs one", pages_.pages())};
  }
  Residence kept;
  kept.memory_ = this;
  kept.cursor_ = {checkpoint, checkpoint};
  kept.base_ = kept.home_ = sequence.base_;
  expect_ok(slots_.retain(kept.base_));
  REPLAYSSM_TRY(share_pages(sequence, checkpoint.tokens, kept));
  return kept;
}

// Precondition: a page is free. The place for it comes first: when the list cannot grow, no page is
// held that no list names. (share_pages() likewise.)
void SequenceMemory::add_page(Residence& sequence) {
  sequence.pages_.emplace_back();
  sequence.pages_.back() = pages_.allocate(idle()).value();
  wait_for(sequence.pages_.back(), sequence);
}

Status SequenceMemory::share_pages(const Residence& from, int tokens, Residence& to) {
  to.waits_for_ = std::max(to.waits_for_, from.waits_for_);
  const int full = layout_.full_pages(tokens);
  for (int i = 0; i < full; ++i) {
    const PageId page = from.pages_[static_cast<std::size_t>(i)];
    to.pages_.push_back(page);
    expect_ok(pages_.retain(page));
  }
  if (pages_copied(Depth{tokens}) > 0) {
    add_page(to);
    const PageId source = from.pages_[static_cast<std::size_t>(full)];
    const auto copied =
        pages_.copy(source, to.pages_.back(), tokens % layout_.page_tokens, !ready(to));
    if (!copied) return copied.error();
    for (const PageId page : {source, to.pages_.back()}) {
      newest_.of(page) = std::max(newest_.of(page), *copied);
    }
    to.waits_for_ = std::max(to.waits_for_, *copied);
    return fills_follow(*copied);
  }
  return {};
}

// In order with the steps; where one of the two waits for a transfer, behind that.
Status SequenceMemory::copy_to(Residence& sequence, const Residence& from,
                               std::span<const MemoryCopy> copies) {
  if (ready(sequence) && ready(from)) return space_.copy(copies);
  const auto copied = space_.copy_beside(copies);
  if (!copied) return copied.error();
  for (const RowIndex row : {sequence.row_, from.row_}) {
    if (row != RowIndex{}) newest_.of(row) = *copied;
  }
  newest_.of(from.base_) = *copied;
  sequence.waits_for_ = *copied;
  return fills_follow(*copied);
}

Status SequenceMemory::leaves(const Residence& sequence, Transfer transfer) {
  newest_.of(sequence.base_) = transfer;
  if (sequence.has_row()) newest_.of(sequence.row_) = transfer;
  for (const PageId page : sequence.pages_) newest_.of(page) = transfer;
  return fills_follow(transfer);
}

Status SequenceMemory::arrives(Residence& sequence, Transfer transfer) {
  sequence.waits_for_ = std::max(sequence.waits_for_, transfer);
  return leaves(sequence, transfer);
}

// The pools fill what they hand out and take back at once.
Status SequenceMemory::fills_follow(Transfer transfer) const {
  return poison_ == Poison::on ? space_.follow(transfer) : Status{};
}

// Of a sequence that shares its past up to there: the last page, unless it is full.
int SequenceMemory::pages_copied(Depth committed) const {
  return layout_.pages_for(committed.tokens) - layout_.full_pages(committed.tokens);
}

// Puts the checkpoint's conv tail, the inputs c-3 .. c-1, where a step at t = c looks for them.
Status SequenceMemory::load_conv_tail(Residence& sequence, const Residence& from) {
  constexpr std::size_t kInputs = kConvWidth - 1;
  const MemoryRegion tails = slots_.tail_memory(sequence.base_);
  const MemoryRegion rings = rows_.row_memory(sequence.row_).back();
  const std::size_t bytes = tails.bytes / kInputs;
  std::array<MemoryCopy, kInputs> copies;
  for (std::size_t i = 0; i < kInputs; ++i) {
    const Depth position = sequence.cursor_.checkpoint - static_cast<int>(kInputs - i);
    const auto row = static_cast<std::size_t>(layout_.geometry.conv_row(position));
    copies[i] = {tails.data + i * bytes,
                 tails.pitch,
                 rings.data + row * bytes,
                 rings.pitch,
                 bytes,
                 tails.count};
  }
  return copy_to(sequence, from, copies);
}

int SequenceMemory::blocks_folded(const Residence& sequence, int tokens, Phase phase) const {
  if (layout_.recurrence == Recurrence::packed) return 0;
  return phase == Phase::prefill
             ? blocks_folded_by_chunk(sequence.cursor_, tokens, layout_.geometry)
             : blocks_folded_by_window(sequence.cursor_, layout_.geometry);
}

bool SequenceMemory::writes_state(const Residence& sequence, int tokens, Phase phase) const {
  return layout_.recurrence == Recurrence::packed || blocks_folded(sequence, tokens, phase) > 0;
}

Status SequenceMemory::prepare(Residence& sequence, int tokens, Phase phase) {
  const int wanted = layout_.pages_for(sequence.cursor_.committed.tokens + tokens);
  const int missing = wanted - static_cast<int>(sequence.pages_.size());
  if (missing > pages_.free()) {
    return Error{fmt::format("KV pages: {} more are needed, {} of {} are free", missing,
                             pages_.free(), pages_.pages())};
  }
  const bool needs_home = writes_state(sequence, tokens, phase) &&
                          sequence.home_ == sequence.base_ && slots_.shared(sequence.base_);
  if (needs_home && slots_.free() == 0) {
    return Error{fmt::format(
        "state slots: all {} are in use, and a sequence that shares its checkpoint is to fold",
        slots_.slots())};
  }
  for (int i = 0; i < missing; ++i) add_page(sequence);
  if (needs_home) {
    sequence.home_ = slots_.allocate(idle()).value();
    REPLAYSSM_TRY(rows_.set_home(sequence.row_, sequence.home_));
  }
  // A copy of the records, or of a state that nobody shares any more, may be on its way.
  wait_for(sequence.row_, sequence);
  if (writes_state(sequence, tokens, phase)) wait_for(sequence.home_, sequence);
  return {};
}

void SequenceMemory::settle(Residence& sequence, int tokens, int accepted, Phase phase) {
  bool wrote = false;
  if (layout_.recurrence == Recurrence::packed) {
    sequence.cursor_.committed += accepted;
    sequence.cursor_.checkpoint = sequence.cursor_.committed;
    wrote = accepted > 0;
  } else {
    const int blocks = blocks_folded(sequence, tokens, phase);
    sequence.cursor_ = advanced(sequence.cursor_, blocks, accepted, layout_.geometry);
    wrote = blocks > 0;
  }
  if (wrote && sequence.home_ != sequence.base_) {
    expect_ok(slots_.release(sequence.base_));
    sequence.base_ = sequence.home_;
  }
  // Those that only rejected tokens were written to.
  const auto used = static_cast<std::size_t>(layout_.pages_for(sequence.cursor_.committed.tokens));
  while (sequence.pages_.size() > used) {
    expect_ok(pages_.release(sequence.pages_.back()));
    sequence.pages_.pop_back();
  }
}

void SequenceMemory::release(Residence& sequence) {
  for (const PageId page : sequence.pages_) expect_ok(pages_.release(page));
  if (sequence.home_ != sequence.base_) expect_ok(slots_.release(sequence.home_));
  expect_ok(slots_.release(sequence.base_));
  if (sequence.has_row()) expect_ok(rows_.release(sequence.row_));
  sequence.memory_ = nullptr;
  sequence.pages_.clear();
}

Status SequenceMemory::publish(const Residence& sequence) {
  return rows_.set_cursor(sequence.row_, sequence.cursor_, sequence.base_, sequence.home_);
}

}  // namespace replayssm
