// All memory of running sequences, and what each of them holds of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "cache/poison.h"
#include "cache/row_pool.h"
#include "cache/sequence_layout.h"
#include "cache/slot_pool.h"
#include "core/memory_space.h"
#include "core/result.h"
#include "model/model.h"
#include "replay/cursor.h"

namespace replayssm {

class SequenceMemory;

// One sequence's holdings: a row, the slot of its checkpoint, pages, and where it stands. A running
// sequence has all of them; one that is kept as a checkpoint only has no row and stands at t = c.
// Move-only; gives everything back when it is destroyed, and must not outlive the SequenceMemory it
// came from.
class Residence {
 public:
  Residence() = default;
  Residence(Residence&& other) noexcept { swap(other); }
  Residence& operator=(Residence&& other) noexcept {
    Residence(std::move(other)).swap(*this);
    return *this;
  }
  ~Residence();

  // False when empty or moved from.
  explicit operator bool() const { return memory_ != nullptr; }

  // Without a row there are no records and no conv inputs beyond the checkpoint's tail: it can be
  // resumed from, not stepped.
  bool has_row() const { return row_ != RowIndex{}; }
  RowIndex row() const { return row_; }
  // The host's mirror of t and c, as base() and home() are of the row's slots: what is written to
  // the row's cursor, and moved as `advance` moves it. Nothing is read back.
  const Cursor& cursor() const { return cursor_; }
  // The slot that the checkpoint is read from; several sequences may share it.
  SlotId base() const { return base_; }
  // The slot that the next fold is written to. Equal to base unless base is shared and a fold is
  // near; then this sequence's alone.
  SlotId home() const { return home_; }
  // Pages of positions 0 .. t - 1 and of those prepared beyond, in order.
  std::span<const PageId> pages() const { return pages_; }

 private:
  friend class SequenceMemory;
  void swap(Residence& other) noexcept;

  SequenceMemory* memory_ = nullptr;
  RowIndex row_;
  Cursor cursor_;
  SlotId base_;
  SlotId home_;
  std::vector<PageId> pages_;
  // What has to be over before the sequence is stepped: its memory is still on its way here, or was
  // somebody's whose memory is still on its way elsewhere.
  Transfer waits_for_;
};

struct PoolSizes {
  int rows = 1;
  int slots = 1;
  int pages = 1;
};

// Owns the pools. Allocates everything in its constructor, nothing later. Its address must not
// change while a Residence of it lives. The pools may lie where the host cannot dereference; it
// moves their bytes by operations of the space only, in order with the steps, but for those that go
// to the host and return (parked_sequence.h): of every id it is known which transfer its memory
// last took part in, and who gets the id waits for that. An error of the space means that the
// sequence must not be used again. Not thread-safe: the engine thread only.
class SequenceMemory {
 public:
  // In the host's memory, or in that of a space, which outlives it. Throw OutOfMemory.
  SequenceMemory(const SequenceLayout& layout, const PoolSizes& sizes, Poison poison = Poison::off)
      : SequenceMemory(layout, sizes, host_space(), poison) {}
  SequenceMemory(const SequenceLayout& layout, const PoolSizes& sizes, MemorySpace& space,
                 Poison poison = Poison::off);
  // The same without exceptions: refused with what the space says.
  static Result<std::unique_ptr<SequenceMemory>> make(const SequenceLayout& layout,
                                                      const PoolSizes& sizes, MemorySpace& space,
                                                      Poison poison = Poison::off);
  SequenceMemory(const SequenceMemory&) = delete;
  SequenceMemory& operator=(const SequenceMemory&) = delete;

  MemorySpace& space() const { return space_; }
  const SequenceLayout& layout() const { return layout_; }
  // Views of all pools for the operations. Valid as long as this object.
  const SequenceViews& views() const { return views_; }

  SlotPool& slots() { return slots_; }
  RowPool& rows() { return rows_; }
  PagePool& pages() { return pages_; }
  const SlotPool& slots() const { return slots_; }
  const RowPool& rows() const { return rows_; }
  const PagePool& pages() const { return pages_; }
  // Bytes allocated, all pools.
  std::int64_t bytes() const;

  // A sequence standing at `cursor`, with a slot of its own and pages for the committed tokens,
  // their contents unset; the default is an empty sequence, whose zero state is not stored. Refused
  // with the numbers when a row, a slot or pages are missing, and when the cursor breaks the
  // invariants of Cursor; then nothing has changed.
  Result<Residence> admit(const Cursor& cursor = {});

  // A second sequence with the same past. Shares the base slot and the full pages, copies records,
  // conv rows and the last partial page; no state is copied. Refused as admit().
  Result<Residence> fork(const Residence& parent) {
    return fork_at(parent, parent.cursor().committed);
  }

  // Whether a sequence can begin at `committed` of the parent's tokens: at its end and one before
  // (the conv inputs reach that far), and at its checkpoint. With replay off: at its end.
  bool can_fork_at(const Residence& parent, Depth committed) const;

  // A second sequence whose past is the first `committed` tokens of the parent's, from its
  // checkpoint. Refused where can_fork_at() says no, and as admit().
  Result<Residence> fork_at(const Residence& parent, Depth committed);

  // The sequence's checkpoint alone, by reference: its base slot and the pages up to it, without a
  // row. Refused at checkpoint 0 and with replay off, where a state has no depth of its own, and
  // when a page is missing.
  Result<Residence> checkpoint_of(const Residence& sequence);

  // To be called before a step that evaluates `tokens` of the sequence: makes sure that it holds
  // the pages that the step fills, and a home slot of its own if the step folds. Refused when they
  // are missing; then nothing has changed and the sequence can wait for others to give back.
  Status prepare(Residence& sequence, int tokens, Phase phase);

  // To be called after `advance`: moves the mirror as advance moved the cursor. `accepted` of the
  // step's `tokens` are committed; chunks: all.
  void settle(Residence& sequence, int tokens, int accepted, Phase phase);

  // Whether the sequence waits for no transfer. After prepare(), this is known of its next step; if
  // not, the step can go without it, or comes after the transfer by follow_transfers().
  bool ready(const Residence& sequence) const { return space_.over(sequence.waits_for_); }
  // Has all that the device does from now on come after the transfer that the sequence waits for.
  Status follow_transfers(const Residence& sequence) const {
    return space_.follow(sequence.waits_for_);
  }
  // To be told of a transfer out of all of the sequence's memory, or into it.
  Status leaves(const Residence& sequence, Transfer transfer);
  Status arrives(Residence& sequence, Transfer transfer);

  // What a step of the sequence would fold: blocks, always 0 with replay off.
  int blocks_folded(const Residence& sequence, int tokens, Phase phase) const;

 private:
  friend class Residence;
  void release(Residence& sequence);
  // Pages of the first `tokens` positions: shared where they are full, a copy of the last one.
  // Precondition: a page is free if the last one is partial.
  Status share_pages(const Residence& from, int tokens, Residence& to);
  int pages_copied(Depth committed) const;
  void add_page(Residence& sequence);
  Status load_conv_tail(Residence& sequence, const Residence& from);
  bool writes_state(const Residence& sequence, int tokens, Phase phase) const;
  Status publish(const Residence& sequence);
  Status fills_follow(Transfer transfer) const;
  Status copy_to(Residence& sequence, const Residence& from, std::span<const MemoryCopy> copies);
  // Of the memory of these ids.
  struct NewestTransfers {
    std::vector<Transfer> of_slot, of_row, of_page;
    Transfer& of(SlotId slot) { return of_slot[static_cast<std::size_t>(slot.value)]; }
    Transfer& of(RowIndex row) { return of_row[static_cast<std::size_t>(row.value)]; }
    Transfer& of(PageId page) { return of_page[static_cast<std::size_t>(page.value)]; }
  };
  // Prefers ids whose memory takes part in no transfer.
  auto idle() {
    return [this, ended = space_.ended()](auto id) { return newest_.of(id) <= ended; };
  }
  template <class Id>
  void wait_for(Id id, Residence& sequence) {
    sequence.waits_for_ = std::max(sequence.waits_for_, newest_.of(id));
  }

  MemorySpace& space_;
  Poison poison_;
  SequenceLayout layout_;
  SlotPool slots_;
  RowPool rows_;
  PagePool pages_;
  SequenceViews views_;
  NewestTransfers newest_;
};

}  // namespace replayssm
