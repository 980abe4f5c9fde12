#include "ops/reference/head_memory.h"

#include <algorithm>

namespace replayssm::reference {
namespace {

std::vector<double> gate_of(const float* gates, std::size_t index, const HeadShape& shape) {
  std::vector<double> gate(kKeyDim);
  const int width = shape.gate_width();
  for (int k = 0; k < kKeyDim; ++k) gate[k] = gates[index * width + (width == 1 ? 0 : k)];
  return gate;
}

double* state_data(const HeadShape&, const StateView& states, SlotId slot, int head) {
  return static_cast<double*>(states.data) + slot.value * states.slot_stride +
         static_cast<std::size_t>(head) * kValueDim * kKeyDim;
}

// Row r of the ring of `row`, among `heads` heads.
std::size_t ring_index(const RingView& ring, RowIndex row, int heads, int head, int r) {
  return (static_cast<std::size_t>(row.value) * heads + head) * ring.ring_rows + r;
}

}  // namespace

HeadToken token_of(const StepArgs& args, int token, int head, DType key_type) {
  const HeadShape& shape = args.shape;
  const float* row = args.qkv + static_cast<std::size_t>(token) * shape.channels();
  const int key_head = head / shape.group();
  HeadToken result;
  std::vector<double> key(kKeyDim), query(kKeyDim);
  for (int k = 0; k < kKeyDim; ++k) {
    query[k] = row[key_head * kKeyDim + k];
    key[k] = as_stored(row[(shape.key_heads + key_head) * kKeyDim + k], key_type);
  }
  result.key = normalised(key, 1.0);
  result.query = normalised(query, 1.0 / std::sqrt(static_cast<double>(kKeyDim)));
  const float* value = row + 2 * shape.key_heads * kKeyDim + head * kValueDim;
  result.value.assign(value, value + kValueDim);
  const std::size_t index = static_cast<std::size_t>(token) * shape.value_heads + head;
  result.gate = gate_of(args.gate, index, shape);
  result.beta = args.beta[index];
  return result;
}

HeadRecord record_of(const HeadShape& shape, const FoldGeometry& geometry, const RingView& ring,
                     RowIndex row, Depth position, int head) {
  const int r = geometry.ring_row(position);
  const std::size_t key_index = ring_index(ring, row, shape.key_heads, head / shape.group(), r);
  const std::size_t index = ring_index(ring, row, shape.value_heads, head, r);
  HeadRecord record;
  std::vector<double> key(kKeyDim);
  for (int k = 0; k < kKeyDim; ++k) {
    key[k] = ring.key_type == DType::bf16
                 ? to_float(static_cast<const bf16*>(ring.keys)[key_index * kKeyDim + k])
                 : static_cast<const float*>(ring.keys)[key_index * kKeyDim + k];
  }
  record.key = normalised(key, 1.0);
  record.gate = gate_of(ring.gates, index, shape);
  const double* correction = static_cast<const double*>(ring.corrections) + index * kValueDim;
  record.correction.assign(correction, correction + kValueDim);
  return record;
}

void add_record(HeadState& state, const HeadRecord& record) {
  decay(state, record.gate);
  write(state, record.correction, record.key);
}

void append(const StepArgs& args, RowIndex row, Depth position, int token, int head,
            const std::vector<double>& correction) {
  const HeadShape& shape = args.shape;
  const RingView& ring = args.rings;
  const int r = args.geometry.ring_row(position);
  const int key_head = head / shape.group();
  const std::size_t key_index = ring_index(ring, row, shape.key_heads, key_head, r);
  const std::size_t index = ring_index(ring, row, shape.value_heads, head, r);
  const float* key = args.qkv + static_cast<std::size_t>(token) * shape.channels() +
                     (shape.key_heads + key_head) * kKeyDim;
  double squares = 1e-6;
  for (int k = 0; k < kKeyDim; ++k) {
    const std::size_t at = key_index * kKeyDim + k;
    if (ring.key_type == DType::bf16)
      static_cast<bf16*>(ring.keys)[at] = to_bf16(key[k]);
    else
      static_cast<float*>(ring.keys)[at] = key[k];
    const double x = as_stored(key[k], ring.key_type);
    squares += x * x;
  }
  ring.key_scales[key_index] = static_cast<float>(1.0 / std::sqrt(squares));
  std::copy(correction.begin(), correction.end(),
            static_cast<double*>(ring.corrections) + index * kValueDim);
  const int width = shape.gate_width();
  const std::size_t gate = (static_cast<std::size_t>(token) * shape.value_heads + head) * width;
  std::copy_n(args.gate + gate, width, ring.gates + index * width);
}

HeadState load(const HeadShape& shape, const StateView& states, SlotId slot, int head) {
  const double* data = state_data(shape, states, slot, head);
  return HeadState(data, data + kValueDim * kKeyDim);
}

void store(const HeadShape& shape, const StateView& states, SlotId slot, int head,
           const HeadState& state) {
  std::copy(state.begin(), state.end(), state_data(shape, states, slot, head));
}

}  // namespace replayssm::reference
