// Keys and values of the attention layers, in pages of a fixed number of positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/id_pool.h"
#include "cache/poison.h"
#include "cache/sequence_layout.h"
#include "core/aligned_buffer.h"
#include "core/result.h"
#include "model/model.h"

namespace replayssm {

// A page covers all attention layers. A page all of whose positions are committed may be shared; a
// page with one holder may be written by it. Not thread-safe.
class PagePool {
 public:
  PagePool(const SequenceLayout& layout, int pages, Poison poison = Poison::off);

  // A page with one holder. Refused with the numbers when all are held.
  Result<PageId> allocate();
  // One holder more or less; refused for a free page.
  Status retain(PageId page);
  Status release(PageId page);

  int references(PageId page) const { return ids_.references(page); }
  int pages() const { return ids_.size(); }
  int free() const { return ids_.free(); }
  int used() const { return ids_.used(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(storage_.bytes()); }

  // One attention layer's part. Valid as long as the pool.
  KvView kv(int layer);

  // Copies the first `tokens` positions of a page, all layers. Precondition: the destination has
  // one holder; tokens <= page_tokens.
  void copy(PageId from, PageId to, int tokens);

  // Bytes of one position's keys (or values) in one layer.
  std::size_t position_bytes(int layer) const;
  // The keys or values of one position in one layer.
  std::byte* keys_at(int layer, PageId page, int offset);
  std::byte* values_at(int layer, PageId page, int offset);

 private:
  void fill(PageId page);

  SequenceLayout layout_;
  Poison poison_;
  IdPool<PageId> ids_;
  // [layers, 2, pages, page_tokens, kv_heads, head_dim]; a drafter's layers last, in their shape
  AlignedBuffer<std::byte> storage_;
};

}  // namespace replayssm
