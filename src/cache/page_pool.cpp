#include "cache/page_pool.h"

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

std::size_t PagePool::position_bytes() const {
  return static_cast<std::size_t>(layout_.kv_heads) * static_cast<std::size_t>(layout_.head_dim) *
         size_of(layout_.activation_type);
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
  return storage_.data() +
         (2 * static_cast<std::size_t>(layer) * positions + position) * position_bytes();
}

std::byte* PagePool::values_at(int layer, PageId page, int offset) {
  return keys_at(layer, page, offset) + static_cast<std::size_t>(pages()) *
                                            static_cast<std::size_t>(layout_.page_tokens) *
                                            position_bytes();
}

void PagePool::copy(PageId from, PageId to, int tokens) {
  const std::size_t bytes = static_cast<std::size_t>(tokens) * position_bytes();
  for (int layer = 0; layer < layout_.kv_layers(); ++layer) {
    std::memcpy(keys_at(layer, to, 0), keys_at(layer, from, 0), bytes);
    std::memcpy(values_at(layer, to, 0), values_at(layer, from, 0), bytes);
  }
}

void PagePool::fill(PageId page) {
  if (poison_ == Poison::off) return;
  const std::size_t bytes = static_cast<std::size_t>(layout_.page_tokens) * position_bytes();
  for (int layer = 0; layer < layout_.kv_layers(); ++layer) {
    std::memset(keys_at(layer, page, 0), kPoisonByte, bytes);
    std::memset(values_at(layer, page, 0), kPoisonByte, bytes);
  }
}

}  // namespace replayssm
