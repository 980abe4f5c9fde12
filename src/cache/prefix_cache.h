// Sequences kept after or while they ran, so that a prompt that begins like one of them resumes
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "cache/host_arena.h"
#include "cache/parked_sequence.h"
#include "cache/prefix_loss.h"
#include "cache/prefix_tree.h"
#include "cache/sequence_memory.h"
#include "core/result.h"
#include "ops/linear_ops.h"

namespace replayssm {

struct PrefixCacheSizes {
  int rows = 0;                 // the most entries with records
  std::int64_t host_bytes = 0;  // for entries that were evicted from the pools; 0: none
  // Of evicted sequences, to tell a loss by eviction from one that never was: 4 bytes each.
  std::int64_t remembered_tokens = 1 << 20;
};

// An entry is one object with all parts of a sequence at depth d (a Residence): pages, the
// checkpoint at c by reference, and, unless it is kept as a checkpoint only, records and conv
// inputs. It serves d, d - 1 and c, and nothing else; a part that is missing cannot be looked up.
// Entries are evicted in the order of their last use, into host memory where there is room, and
// return from there when they are used. No state is copied within the pools.
//
// Rows are scarcer than slots: a turn of a chat leaves two entries with records, at the end of its
// prompt and at its end. An entry is superseded once a later entry with records continues it, all
// that is known continues it there, and nothing has used it since. Where a row is missing, the
// superseded entry that was used longest ago becomes a checkpoint only, before anything is evicted.
//
// Not thread-safe; destroyed before the SequenceMemory.
class PrefixCache {
 public:
  // Both outlive the cache. `ops` is the backend that owns the state layout.
  PrefixCache(SequenceMemory& memory, const LinearOps& ops, const PrefixCacheSizes& sizes);

  struct Match {
    EntryId entry;                     // none: nothing to resume from
    int tokens = 0;                    // of the prompt, that need not be evaluated
    int lost = 0;                      // known beyond those
    std::optional<PrefixLoss> reason;  // if lost > 0
  };
  // The entry that saves most of the prompt, of which at most `most` tokens may be skipped.
  Match find(std::span<const TokenId> prompt, int most) const;

  // A sequence that stands after the match's tokens. Refused when a row, a slot or pages are
  // missing; the entry is not evicted by trying. Precondition: a match of this state of the cache
  // with an entry.
  Result<Residence> resume(const Match& match);

  // Keeps a sequence that stands at the end of these tokens, so that it serves its depth. False,
  // and it is dropped, when it stands elsewhere, the same is there, or there is no place for its
  // row. When it throws, the sequence is dropped and nothing is lost but what made room for it.
  bool keep(std::span<const TokenId> tokens, Residence sequence);

  // Keeps a second sequence with the past of one that goes on and stands at the end of these
  // tokens. False when the same is there. Refused when a row or a page is missing although what was
  // superseded, and one entry, gave way.
  Result<bool> keep_fork(std::span<const TokenId> tokens, const Residence& sequence);

  // The same for the sequence's checkpoint alone, which stands at the end of these tokens; refused
  // as SequenceMemory::checkpoint_of() says.
  Result<bool> keep_checkpoint(std::span<const TokenId> tokens, const Residence& sequence);

  // Whether the entry is there and not on the host.
  bool in_pools(EntryId entry) const;

  // Gives up the entry that was used longest ago. False when there is none in the pools.
  bool evict_one();
  // Gives up all of them, in the pools and on the host; how many there were.
  int clear();

  struct EntryView {
    Cursor cursor;
    bool with_records = false;
    bool on_host = false;
  };
  std::vector<EntryView> entries() const;
  int rows_held() const { return rows_held_; }
  std::int64_t host_bytes() const { return host_bytes_; }
  // Whether the memory for them was there at the start; if not, it is got when it is needed, which
  // steps wait for. Error: why.
  const Status& reserved() const { return reserved_; }
  std::int64_t evictions() const { return evictions_; }
  std::int64_t host_restores() const { return host_restores_; }
  std::int64_t demotions() const { return demotions_; }

 private:
  // A sequence that left the pools: an image of it, or where these are a device's, its memory as it
  // was, which comes and goes while the device works.
  struct HostCopy {
    std::vector<std::byte> image;
    std::optional<ParkedSequence> parked;
    std::int64_t bytes() const {
      return parked ? parked->bytes() : static_cast<std::int64_t>(image.size());
    }
  };
  struct Entry {
    Cursor cursor;
    bool with_records = false;
    Residence memory;  // or
    HostCopy host;
    std::uint64_t made = 0;  // by the clock, like
    std::uint64_t last_used = 0;
  };
  using Entries = std::map<EntryId, Entry>;
  struct Evicted {
    EntryId id;
    std::int64_t tokens = 0;
  };

  void touch(Entry& entry) { entry.last_used = ++clock_; }
  Entry& insert(std::span<const TokenId> tokens, Residence sequence);
  bool use_known(std::span<const TokenId> tokens, bool with_records);
  bool make_row_room();
  bool superseded(EntryId id, const Entry& entry) const;
  bool demote(Entries::iterator entry);
  void evict(Entries::iterator entry);
  bool move_to_host(Entry& entry);
  Status restore(Entry& entry);
  bool copy_to_host(const Residence& sequence, HostCopy& host);
  Result<Residence> read_entry(bool with_records, const HostCopy& host);
  void forget(Entries::iterator entry, bool evicted);
  void remember_evicted(EntryId id);
  void forget_evicted(const std::deque<Evicted>::const_iterator& gone);
  template <class Wanted>
  Entries::iterator oldest(Wanted&& wanted);
  void make_host_room(std::int64_t bytes);
  Entries::iterator oldest_on_host();

  SequenceMemory& memory_;
  const LinearOps& ops_;
  PrefixCacheSizes sizes_;
  HostArena arena_;  // of parked sequences
  Status reserved_;
  PrefixTree tree_;
  Entries entries_;
  PrefixTree evicted_;  // the tokens of the newest evicted sequences
  std::deque<Evicted> evicted_order_;
  std::int64_t remembered_tokens_ = 0;  // of them
  std::int32_t next_id_ = 0;
  std::uint64_t clock_ = 0;
  int rows_held_ = 0;
  std::int64_t host_bytes_ = 0;
  std::int64_t evictions_ = 0;
  std::int64_t host_restores_ = 0;
  std::int64_t demotions_ = 0;
};

}  // namespace replayssm
