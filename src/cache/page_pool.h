// Keys and values of the attention layers, in pages of a fixed number of positions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cache/id_pool.h"
#include "cache/poison.h"
#include "cache/sequence_layout.h"
#include "core/memory_space.h"
#include "core/result.h"
#include "model/model.h"

namespace replayssm {

// A page covers all attention layers. A page all of whose positions are committed may be shared; a
// page with one holder may be written by it. Not thread-safe.
class PagePool {
 public:
  // Throws OutOfMemory. The space outlives the pool.
  PagePool(const SequenceLayout& layout, int pages, MemorySpace& space,
           Poison poison = Poison::off);

  // A page with one holder, as IdPool::allocate(). Refused with the numbers when all are held.
  Result<PageId> allocate(const PreferredIds<PageId>& preferred = {});
  // One holder more or less; refused for a free page.
  Status retain(PageId page);
  Status release(PageId page);

  int references(PageId page) const { return ids_.references(page); }
  int pages() const { return ids_.size(); }
  int free() const { return ids_.free(); }
  int used() const { return ids_.used(); }
  // Of the space, without what layout.draft.on_host keeps elsewhere.
  std::int64_t bytes() const { return static_cast<std::int64_t>(storage_.bytes()); }

  // One attention layer's part. Valid as long as the pool.
  KvView kv(int layer);

  // Copies the first `tokens` positions of a page, all layers; `beside`: as a transfer where the
  // space has those, which is returned. After an error nothing of it is under way. Precondition:
  // the destination has one holder; tokens <= page_tokens.
  Result<Transfer> copy(PageId from, PageId to, int tokens, bool beside = false);

  // Bytes of one position's keys (or values) in one layer.
  std::size_t position_bytes(int layer) const;
  // The keys or values of one position in one layer; addresses of the layer's space.
  std::byte* keys_at(int layer, PageId page, int offset) const;
  std::byte* values_at(int layer, PageId page, int offset) const;
  // The first `tokens` positions of a page, [tokens, position_bytes] a piece: keys and values of
  // each of the model's layers in turn, and those of each of a drafter's.
  std::array<MemoryRegion, 2> page_memory(PageId page, int tokens) const;
  // Where these two lie.
  std::array<MemorySpace*, 2> page_spaces() const {
    return {&storage_.space(), &draft_storage_.space()};
  }

 private:
  void fill(PageId page);

  SequenceLayout layout_;
  Poison poison_;
  IdPool<PageId> ids_;
  // [layers, 2, pages, page_tokens, kv_heads, head_dim]; a drafter's layers last, in their shape,
  // or in a storage of their own.
  SpaceBuffer storage_;
  SpaceBuffer draft_storage_;
};

}  // namespace replayssm
