#include "text/bpe.h"

#include <algorithm>
#include <bit>

namespace replayssm {
namespace {

constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // no pair: tokens are not negative

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_tokens, std::span<const Merge> merges)
    : byte_tokens_(byte_tokens) {
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(2 * merges.size(), 2));
  shift_ = 64 - std::countr_zero(capacity);
  slots_.assign(capacity, Slot{kEmpty, 0, -1});
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const std::uint64_t pair = pair_of(merge.left, merge.right);
    std::size_t at = first_slot(pair);
    while (slots_[at].pair != kEmpty && slots_[at].pair != pair) {
      at = (at + 1) & (capacity - 1);
    }
    slots_[at] = Slot{pair, static_cast<std::uint32_t>(rank), merge.result};
  }
}

// Fibonacci hashing: the product's upper bits depend on all bits of the pair.
std::size_t Bpe::first_slot(std::uint64_t pair) const {
  return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> shift_);
}

const Bpe::Slot* Bpe::find(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_of(left, right);
  for (std::size_t at = first_slot(pair);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == pair) return &slots_[at];
    if (slots_[at].pair == kEmpty) return nullptr;
  }
}

// Puts the merge of the symbol `left` with its right neighbour, if there is one, on the heap.
void Bpe::propose(Workspace& workspace, std::int32_t left) const {
  const std::int32_t right = workspace.symbols[left].next;
  if (right < 0) return;
  const Slot* merge = find(workspace.symbols[left].token, workspace.symbols[right].token);
  if (merge == nullptr) return;
  workspace.heap.push_back(
      {static_cast<std::uint64_t>(merge->rank) << 32 | static_cast<std::uint32_t>(left),
       merge->result});
}

void Bpe::encode(std::string_view word, Workspace& workspace, std::vector<TokenId>& out) const {
  const auto later = [](const Workspace::Candidate& a, const Workspace::Candidate& b) {
    return a.order > b.order;
  };
  auto& symbols = workspace.symbols;
  auto& heap = workspace.heap;
  const auto count = static_cast<std::int32_t>(word.size());

  symbols.resize(word.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    symbols[i] = {byte_tokens_[byte], i - 1, i + 1 < count ? i + 1 : -1};
  }
  heap.clear();
  for (std::int32_t i = 0; i + 1 < count; ++i) propose(workspace, i);
  std::make_heap(heap.begin(), heap.end(), later);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Workspace::Candidate best = heap.back();
    heap.pop_back();
    const auto left = static_cast<std::int32_t>(best.order & 0xFFFFFFFF);
    if (symbols[left].token < 0 || symbols[left].next < 0) continue;
    const std::int32_t right = symbols[left].next;
    // A candidate is stale once either side has changed. The result alone is compared, not the
    // rank: two pairs with the same result are interchangeable in the `tokenizers` package too.
    const Slot* merge = find(symbols[left].token, symbols[right].token);
    if (merge == nullptr || merge->result != best.result) continue;

    symbols[left].token = best.result;
    symbols[left].next = symbols[right].next;
    if (symbols[right].next >= 0) symbols[symbols[right].next].previous = left;
    symbols[right].token = -1;

    const auto push = [&](std::int32_t index) {
      const std::size_t before = heap.size();
      propose(workspace, index);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    };
    if (symbols[left].previous >= 0) push(symbols[left].previous);
    push(left);
  }

  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[i].next) {
    out.push_back(symbols[i].token);
  }
}

}  // namespace replayssm
