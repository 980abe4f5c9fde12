#include "cache/prefix_cache.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cache/sequence_image.h"

namespace replayssm {
namespace {

// The most evicted sequences whose tokens are remembered.
constexpr std::size_t kRememberedEvictions = 256;

}  // namespace

std::string_view name_of(PrefixLoss loss) {
  switch (loss) {
    case PrefixLoss::no_state:
      return "no_state";
    case PrefixLoss::tail:
      return "tail";
    case PrefixLoss::evicted:
      return "evicted";
    case PrefixLoss::prompt_logprobs:
      return "prompt_logprobs";
  }
  return "unknown";
}

PrefixCache::PrefixCache(SequenceMemory& memory, const LinearOps& ops,
                         const PrefixCacheSizes& sizes)
    : memory_(memory), ops_(ops), sizes_(sizes), arena_(memory.space(), sizes.host_bytes) {
  if (!memory.space().on_host()) reserved_ = arena_.reserve();
}

PrefixCache::Match PrefixCache::find(std::span<const TokenId> prompt, int most) const {
  const auto serves = [&](EntryId id, int common) {
    return resume_depth(entries_.at(id).cursor, std::min(common, most),
                        memory_.layout().recurrence == Recurrence::replay)
        .tokens;
  };
  const PrefixTree::Best best = tree_.best(prompt, serves);
  Match match;
  match.entry = best.entry;
  match.tokens = best.value;
  match.lost = std::max(0, std::min(best.longest, most) - best.value);
  if (match.lost > 0) {
    const bool in_tail = best.entry != EntryId{} && best.longest == best.common &&
                         best.value == entries_.at(best.entry).cursor.checkpoint.tokens;
    match.reason = in_tail ? PrefixLoss::tail : PrefixLoss::no_state;
  }
  const PrefixTree::Best gone = evicted_.best(prompt, [](EntryId, int common) { return common; });
  if (std::min(gone.longest, most) > match.tokens + match.lost) {
    match.lost = std::min(gone.longest, most) - match.tokens;
    match.reason = PrefixLoss::evicted;
  }
  return match;
}

Result<Residence> PrefixCache::resume(const Match& match) {
  Entry& entry = entries_.at(match.entry);
  touch(entry);
  if (!entry.memory) REPLAYSSM_TRY(restore(entry));
  return memory_.fork_at(entry.memory, Depth{match.tokens});
}

bool PrefixCache::keep(std::span<const TokenId> tokens, Residence sequence) {
  // A state of one depth under tokens of another is no entry.
  if (tokens.empty() || static_cast<int>(tokens.size()) != sequence.cursor().committed.tokens) {
    return false;
  }
  const bool with_records = sequence.has_row();
  if (use_known(tokens, with_records)) return false;
  if (const EntryId less = tree_.at(tokens); less != EntryId{}) forget(entries_.find(less), false);
  if (with_records && !make_row_room()) return false;
  // An entry that gave up its row may have left its checkpoint right here.
  if (const EntryId left = tree_.at(tokens); left != EntryId{}) forget(entries_.find(left), false);
  touch(insert(tokens, std::move(sequence)));
  if (const EntryId gone = evicted_.at(tokens); gone != EntryId{}) {
    forget_evicted(std::find_if(evicted_order_.begin(), evicted_order_.end(),
                                [&](const Evicted& each) { return each.id == gone; }));
  }
  return true;
}

Result<bool> PrefixCache::keep_fork(std::span<const TokenId> tokens, const Residence& sequence) {
  if (use_known(tokens, true)) return false;
  // Before the fork, which needs that row.
  if (!make_row_room()) {
    return Error{"prefix cache: no row for a second sequence"};
  }
  auto fork = memory_.fork(sequence);
  if (!fork && evict_one()) fork = memory_.fork(sequence);
  if (!fork) return fork.error();
  return keep(tokens, std::move(*fork));
}

Result<bool> PrefixCache::keep_checkpoint(std::span<const TokenId> tokens,
                                          const Residence& sequence) {
  auto checkpoint = memory_.checkpoint_of(sequence);
  if (!checkpoint) return checkpoint.error();
  return keep(tokens, std::move(*checkpoint));
}

// Whether an entry in the pools serves all that a sequence of these tokens would; then it is used.
bool PrefixCache::use_known(std::span<const TokenId> tokens, bool with_records) {
  const EntryId same = tree_.at(tokens);
  if (same == EntryId{}) return false;
  Entry& entry = entries_.at(same);
  if (!entry.memory || (with_records && !entry.with_records)) return false;
  touch(entry);
  return true;
}

// Precondition: nothing is stored for these tokens.
PrefixCache::Entry& PrefixCache::insert(std::span<const TokenId> tokens, Residence sequence) {
  const EntryId id{next_id_++};
  const auto placed = entries_.emplace(id, Entry{}).first;
  try {
    tree_.insert(tokens, id);
  } catch (...) {
    entries_.erase(placed);
    throw;
  }
  Entry& entry = placed->second;
  entry.cursor = sequence.cursor();
  entry.with_records = sequence.has_row();
  entry.memory = std::move(sequence);
  entry.made = ++clock_;
  rows_held_ += entry.with_records ? 1 : 0;
  return entry;
}

// The entry that was used longest ago, of those for which `wanted(id, entry)` holds.
template <class Wanted>
PrefixCache::Entries::iterator PrefixCache::oldest(Wanted&& wanted) {
  auto found = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (found != entries_.end() && at->second.last_used >= found->second.last_used) continue;
    if (wanted(at->first, at->second)) found = at;
  }
  return found;
}

// A place for one more row. False when the cache may hold none at all.
bool PrefixCache::make_row_room() {
  while (rows_held_ >= sizes_.rows) {
    const auto holds_row = [](const Entry& entry) { return entry.memory && entry.with_records; };
    const auto spent = oldest(
        [&](EntryId id, const Entry& entry) { return holds_row(entry) && superseded(id, entry); });
    if (spent != entries_.end()) {
      if (!demote(spent)) evict(spent);
      continue;
    }
    const auto last = oldest([&](EntryId, const Entry& entry) { return holds_row(entry); });
    if (last == entries_.end()) return false;
    evict(last);
  }
  return true;
}

bool PrefixCache::superseded(EntryId id, const Entry& entry) const {
  for (EntryId next = tree_.next_below(id); next != EntryId{}; next = tree_.next_below(next)) {
    const Entry& later = entries_.at(next);
    if (later.memory && later.with_records && later.made > entry.last_used) return true;
  }
  return false;
}

// Its checkpoint goes on as an entry of its own, as old as it was. False, with nothing changed, if
// there is none.
bool PrefixCache::demote(Entries::iterator entry) {
  auto checkpoint = memory_.checkpoint_of(entry->second.memory);
  if (!checkpoint) return false;
  std::vector<TokenId> tokens = tree_.tokens_of(entry->first);
  tokens.resize(static_cast<std::size_t>(checkpoint->cursor().committed.tokens));
  if (tree_.at(tokens) == EntryId{}) {
    insert(tokens, std::move(*checkpoint)).last_used = entry->second.last_used;
  }
  forget(entry, false);
  ++demotions_;
  return true;
}

bool PrefixCache::in_pools(EntryId entry) const {
  const auto found = entries_.find(entry);
  return found != entries_.end() && found->second.memory;
}

bool PrefixCache::evict_one() {
  const auto last = oldest([](EntryId, const Entry& entry) { return bool(entry.memory); });
  if (last == entries_.end()) return false;
  evict(last);
  return true;
}

void PrefixCache::evict(Entries::iterator entry) {
  ++evictions_;
  if (!move_to_host(entry->second)) forget(entry, true);
}

// A checkpoint without a row borrows one for it; without one, or without room, it is not moved.
bool PrefixCache::move_to_host(Entry& entry) {
  if (sizes_.host_bytes == 0) return false;
  Residence borrowed;
  if (!entry.memory.has_row()) {
    auto fork = memory_.fork(entry.memory);
    if (!fork) return false;
    borrowed = std::move(*fork);
  }
  if (!copy_to_host(borrowed ? borrowed : entry.memory, entry.host)) return false;
  rows_held_ -= entry.with_records ? 1 : 0;
  entry.memory = Residence{};
  return true;
}

// False, with nothing in `host`, if there is no room for it even alone. Others make room.
bool PrefixCache::copy_to_host(const Residence& sequence, HostCopy& host) {
  const bool parks = !memory_.space().on_host();
  const std::int64_t size =
      parks ? ParkedSequence::bytes_of(memory_, sequence) : image_bytes(memory_, sequence);
  if (size > sizes_.host_bytes) return false;
  if (!parks) {
    ByteWriter image;
    if (!write_image(memory_, sequence, ops_, image)) return false;
    make_host_room(size);
    host.image = std::move(image).take();
    host_bytes_ += size;
    return true;
  }
  if (!arena_.could_hold(static_cast<std::size_t>(size))) return false;
  make_host_room(size);
  while (true) {
    auto parked = ParkedSequence::park(memory_, sequence, arena_);
    if (!parked) return false;
    if (*parked) {
      host.parked = std::move(**parked);
      host_bytes_ += size;
      return true;
    }
    // Room, but not in one piece.
    const auto last = oldest_on_host();
    if (last == entries_.end()) return false;
    forget(last, true);
  }
}

void PrefixCache::make_host_room(std::int64_t bytes) {
  while (host_bytes_ + bytes > sizes_.host_bytes) forget(oldest_on_host(), true);
}

// Without one whose copy is on its way back: restore() has taken it out.
PrefixCache::Entries::iterator PrefixCache::oldest_on_host() {
  return oldest([](EntryId, const Entry& entry) { return entry.host.bytes() > 0; });
}

// Back into the pools. The copy is given up only when that has worked. It is taken out of the entry
// meanwhile, so that what is evicted to make room cannot displace it.
Status PrefixCache::restore(Entry& entry) {
  HostCopy host = std::exchange(entry.host, {});
  const std::int64_t size = host.bytes();
  host_bytes_ -= size;
  const auto put_back = [&] {
    make_host_room(size);
    host_bytes_ += size;
    entry.host = std::move(host);
  };
  try {
    auto sequence = read_entry(entry.with_records, host);
    if (!sequence) {
      put_back();
      return sequence.error();
    }
    entry.memory = std::move(*sequence);
  } catch (...) {
    put_back();
    throw;
  }
  rows_held_ += entry.with_records ? 1 : 0;
  ++host_restores_;
  return {};
}

Result<Residence> PrefixCache::read_entry(bool with_records, const HostCopy& host) {
  if (with_records && !make_row_room()) {
    return Error{"prefix cache: no row for an entry from the host"};
  }
  ByteReader bytes(host.image);
  auto sequence = host.parked ? host.parked->resume(memory_) : read_image(memory_, ops_, bytes);
  if (!sequence || with_records) return sequence;
  return memory_.checkpoint_of(*sequence);
}

void PrefixCache::forget(Entries::iterator entry, bool evicted) {
  const EntryId id = entry->first;
  if (evicted) remember_evicted(id);
  if (entry->second.memory && entry->second.with_records) --rows_held_;
  host_bytes_ -= entry->second.host.bytes();
  tree_.erase(id);
  entries_.erase(entry);
}

// A loss that cannot be explained later is no reason to fail now.
void PrefixCache::remember_evicted(EntryId id) {
  try {
    const std::vector<TokenId> tokens = tree_.tokens_of(id);
    if (evicted_.at(tokens) != EntryId{}) return;
    evicted_order_.push_back({id, static_cast<std::int64_t>(tokens.size())});
    try {
      evicted_.insert(tokens, id);
    } catch (...) {
      evicted_order_.pop_back();
      throw;
    }
  } catch (const std::bad_alloc&) {
    return;
  }
  remembered_tokens_ += evicted_order_.back().tokens;
  while (evicted_order_.size() > kRememberedEvictions ||
         remembered_tokens_ > sizes_.remembered_tokens) {
    forget_evicted(evicted_order_.begin());
  }
}

void PrefixCache::forget_evicted(const std::deque<Evicted>::const_iterator& gone) {
  evicted_.erase(gone->id);
  remembered_tokens_ -= gone->tokens;
  evicted_order_.erase(gone);
}

int PrefixCache::clear() {
  const int count = static_cast<int>(entries_.size());
  while (!entries_.empty()) forget(entries_.begin(), false);
  while (!evicted_order_.empty()) forget_evicted(evicted_order_.begin());
  return count;
}

std::vector<PrefixCache::EntryView> PrefixCache::entries() const {
  std::vector<EntryView> views;
  for (const auto& [id, entry] : entries_) {
    views.push_back({entry.cursor, entry.with_records, !entry.memory});
  }
  return views;
}

}  // namespace replayssm
