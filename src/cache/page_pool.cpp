#include "cache/page_pool.h"

#include <algorithm>
#include <cstring>

namespace replayssm {

PagePool::PagePool(const SequenceLayout& layout, int pages, Poison poison)
    : layout_(layout),
      poison_(poison),
      ids_("KV page", pages),
      storage_(static_cast<std::size_t>(pages * layout.page_bytes())) {
  if (poison_ == Poison::on) storage_.fill_bytes(kPoisonByte);
}

Result<PageId> PagePool::allocate() {
  const auto page = ids_.allocate();
  if (!page) {
    return Error{fmt::format("KV pages: all {} pages of {} tokens are in use", pages(),
                             layout_.page_tokens)};
  }
  fill(*page);
  return *page;
}

Status PagePool::retain(PageId page) { return ids_.retain(page); }

Status PagePool::release(PageId page) {
  const auto freed = ids_.release(page);
  if (!freed) return freed.error();
  if (*freed) fill(page);
  return {};
}

std::size_t PagePool::position_bytes(int layer) const {
  return static_cast<std::size_t>(layout_.kv_row_bytes(layer));
}

KvView PagePool::kv(int layer) {
  KvView view;
  view.keys = keys_at(layer, PageId{0}, 0);
  view.values = values_at(layer, PageId{0}, 0);
  view.type = layout_.activation_type;
  view.pages = pages();
  view.page_tokens = layout_.page_tokens;
  return view;
}

std::byte* PagePool::keys_at(int layer, PageId page, int offset) {
  const std::size_t positions =
      static_cast<std::size_t>(pages()) * static_cast<std::size_t>(layout_.page_tokens);
  const auto position =
      static_cast<std::size_t>(page.value) * static_cast<std::size_t>(layout_.page_tokens) +
      static_cast<std::size_t>(offset);
  // Whole layers before it, of at most two shapes.
  const auto target = static_cast<std::size_t>(std::min(layer, layout_.attention_layers));
  const std::size_t drafter = static_cast<std::size_t>(layer) - target;
  const std::size_t row_bytes_before =
      target * position_bytes(0) + drafter * position_bytes(layout_.attention_layers);
  return storage_.data() + 2 * row_bytes_before * positions + position * position_bytes(layer);
}

std::byte* PagePool::values_at(int layer, PageId page, int offset) {
  return keys_at(layer, page, offset) + static_cast<std::size_t>(pages()) *
                                            static_cast<std::size_t>(layout_.page_tokens) *
                                            position_bytes(layer);
}

void PagePool::copy(PageId from, PageId to, int tokens) {
  for (int layer = 0; layer < layout_.kv_layers(); ++layer) {
    const std::size_t bytes = static_cast<std::size_t>(tokens) * position_bytes(layer);
    std::memcpy(keys_at(layer, to, 0), keys_at(layer, from, 0), bytes);
    std::memcpy(values_at(layer, to, 0), values_at(layer, from, 0), bytes);
  }
}

void PagePool::fill(PageId page) {
  if (poison_ == Poison::off) return;
  for (int layer = 0; layer < layout_.kv_layers(); ++layer) {
    const std::size_t bytes = static_cast<std::size_t>(layout_.page_tokens) * position_bytes(layer);
    std::memset(keys_at(layer, page, 0), kPoisonByte, bytes);
    std::memset(values_at(layer, page, 0), kPoisonByte, bytes);
  }
}

}  // namespace replayssm
