#include "cache/sequence_layout.h"

#include "ops/views.h"

namespace replayssm {
namespace {

std::int64_t bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }

}  // namespace

std::int64_t SequenceLayout::state_bytes() const {
  return static_cast<std::int64_t>(heads.state_elements()) * bytes(state_type);
}

std::int64_t SequenceLayout::tail_bytes() const {
  return std::int64_t{kConvWidth - 1} * heads.channels() * bytes(activation_type);
}

std::int64_t SequenceLayout::slot_bytes() const {
  return linear_layers * (state_bytes() + tail_bytes());
}

std::int64_t SequenceLayout::record_bytes() const {
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t key_head = kKeyDim * bytes(activation_type) + kFloat;
  const std::int64_t value_head = kValueDim * bytes(correction_type) + heads.gate_width() * kFloat;
  return heads.key_heads * key_head + heads.value_heads * value_head;
}

std::int64_t SequenceLayout::ring_bytes_per_row() const {
  if (recurrence == Recurrence::packed) return 0;
  return std::int64_t{linear_layers} * geometry.ring_rows() * record_bytes();
}

std::int64_t SequenceLayout::conv_ring_bytes() const {
  return std::int64_t{geometry.conv_rows()} * heads.channels() * bytes(activation_type);
}

std::int64_t SequenceLayout::conv_ring_bytes_per_row() const {
  return linear_layers * conv_ring_bytes();
}

std::int64_t SequenceLayout::cursor_bytes_per_row() const {
  return static_cast<std::int64_t>(2 * sizeof(Depth) + 2 * sizeof(SlotId));
}

std::int64_t SequenceLayout::kv_row_bytes(int layer) const {
  const std::int64_t width = is_draft_layer(layer) ? std::int64_t{draft.kv_heads} * draft.head_dim
                                                   : std::int64_t{kv_heads} * head_dim;
  return width * bytes(activation_type);
}

std::int64_t SequenceLayout::kv_bytes_per_token() const {
  return 2 * (attention_layers * kv_row_bytes(0) + draft.count * kv_row_bytes(attention_layers));
}

std::int64_t SequenceLayout::host_kv_bytes_per_token() const {
  return draft.on_host ? std::int64_t{2} * draft.count * kv_row_bytes(attention_layers) : 0;
}

std::int64_t SequenceLayout::page_bytes() const { return kv_bytes_per_token() * page_tokens; }

int SequenceLayout::pages_for(std::int64_t tokens) const {
  return full_pages(tokens + page_tokens - 1);
}

int SequenceLayout::full_pages(std::int64_t tokens) const {
  return kv_layers() == 0 ? 0 : static_cast<int>(tokens / page_tokens);
}

}  // namespace replayssm
