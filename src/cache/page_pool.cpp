#include "cache/page_pool.h"

#include <algorithm>
#include <array>
#include <span>

namespace replayssm {
namespace {

// Of all pages, in the host's memory because of layout.draft.on_host, and elsewhere.
std::int64_t host_bytes(const SequenceLayout& layout, int pages) {
  return std::int64_t{pages} * layout.page_tokens * layout.host_kv_bytes_per_token();
}
std::int64_t space_bytes(const SequenceLayout& layout, int pages) {
  return pages * layout.page_bytes() - host_bytes(layout, pages);
}

}  // namespace

PagePool::PagePool(const SequenceLayout& layout, int pages, MemorySpace& space, Poison poison)
    : layout_(layout),
      poison_(poison),
      ids_("KV page", pages),
      storage_(space, static_cast<std::size_t>(space_bytes(layout, pages))),
      draft_storage_(layout.draft.on_host ? host_space() : space,
                     static_cast<std::size_t>(host_bytes(layout, pages))) {
  for (const SpaceBuffer* storage : {&storage_, &draft_storage_}) {
    const MemoryRegion all = storage->whole();
    fill_with(poison_, storage->space(), {&all, 1});
  }
}

Result<PageId> PagePool::allocate(const PreferredIds<PageId>& preferred) {
  const auto page = ids_.allocate(preferred);
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

std::byte* PagePool::keys_at(int layer, PageId page, int offset) const {
  const std::size_t positions =
      static_cast<std::size_t>(pages()) * static_cast<std::size_t>(layout_.page_tokens);
  const auto position =
      static_cast<std::size_t>(page.value) * static_cast<std::size_t>(layout_.page_tokens) +
      static_cast<std::size_t>(offset);
  // Whole layers before it, of at most two shapes.
  const auto target = static_cast<std::size_t>(std::min(layer, layout_.attention_layers));
  const std::size_t drafter = static_cast<std::size_t>(layer) - target;
  const bool apart = layout_.draft.on_host && layout_.is_draft_layer(layer);
  const std::size_t row_bytes_before =
      (apart ? 0 : target * position_bytes(0)) + drafter * position_bytes(layout_.attention_layers);
  return (apart ? draft_storage_ : storage_).data() + 2 * row_bytes_before * positions +
         position * position_bytes(layer);
}

std::byte* PagePool::values_at(int layer, PageId page, int offset) const {
  return keys_at(layer, page, offset) + static_cast<std::size_t>(pages()) *
                                            static_cast<std::size_t>(layout_.page_tokens) *
                                            position_bytes(layer);
}

std::array<MemoryRegion, 2> PagePool::page_memory(PageId page, int tokens) const {
  const auto layers = [&](int first, int count) {
    const std::size_t bytes = static_cast<std::size_t>(tokens) * position_bytes(first);
    const auto pitch = values_at(first, page, 0) - keys_at(first, page, 0);
    return MemoryRegion{keys_at(first, page, 0), bytes, 2 * static_cast<std::size_t>(count),
                        static_cast<std::size_t>(pitch)};
  };
  return {layers(0, layout_.attention_layers),
          layers(layout_.attention_layers, layout_.draft.count)};
}

Result<Transfer> PagePool::copy(PageId from, PageId to, int tokens, bool beside) {
  const auto source = page_memory(from, tokens);
  const auto target = page_memory(to, tokens);
  const std::array copies = {copy_of(source[0], target[0]), copy_of(source[1], target[1])};
  std::span<const MemoryCopy> inside = copies;
  // What is on the host is copied at once and goes first: when the rest fails nothing is under way.
  if (layout_.draft.on_host) {
    REPLAYSSM_TRY(host_space().copy(inside.last(1)));
    inside = inside.first(1);
  }
  if (beside) return storage_.space().copy_beside(inside);
  REPLAYSSM_TRY(storage_.space().copy(inside));
  return Transfer{};
}

void PagePool::fill(PageId page) {
  const auto memory = page_memory(page, layout_.page_tokens);
  const auto spaces = page_spaces();
  for (std::size_t i = 0; i < spaces.size(); ++i) fill_with(poison_, *spaces[i], {&memory[i], 1});
}

}  // namespace replayssm
