#include "layer_set.h"

#include <cmath>

#include "core/bfloat16.h"
#include "replay/cursor.h"

namespace replayssm::bench {
namespace {

std::size_t count(int a, int b = 1, int c = 1, int d = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) *
         static_cast<std::size_t>(d);
}

void store(std::byte* data, DType type, std::size_t i, float value) {
  switch (type) {
    case DType::f64:
      reinterpret_cast<double*>(data)[i] = value;
      break;
    case DType::bf16:
      reinterpret_cast<bf16*>(data)[i] = to_bf16(value);
      break;
    default:
      reinterpret_cast<float*>(data)[i] = value;
      break;
  }
}

void fill(AlignedBuffer<float>& buffer, Random& random, float low, float high) {
  for (float& x : buffer.span()) x = random.uniform(low, high);
}

}  // namespace

LayerSet::LayerSet(const SetOptions& o, const LinearOps& ops)
    : options_(o),
      state_type_(ops.state_type_for(o.state)),
      correction_type_(state_type_),
      gate_form_(ops.gate_form()) {
  const HeadShape& heads = o.heads;
  const int ring = o.geometry.ring_rows();
  const int tokens = o.rows * o.tokens_per_row;
  states_ = AlignedBuffer<std::byte>(count(o.rows) * heads.state_elements() * size_of(state_type_));
  keys_ = AlignedBuffer<std::byte>(count(o.rows, heads.key_heads, ring, kKeyDim) * size_of(o.key));
  key_scales_ = AlignedBuffer<float>(count(o.rows, heads.key_heads, ring));
  corrections_ = AlignedBuffer<std::byte>(count(o.rows, heads.value_heads, ring, kValueDim) *
                                          size_of(correction_type_));
  gates_ = AlignedBuffer<float>(count(o.rows, heads.value_heads, ring, heads.gate_width()));
  conv_inputs_ = AlignedBuffer<std::byte>(count(o.rows, o.geometry.conv_rows(), heads.channels()) *
                                          size_of(o.key));
  conv_tails_ = AlignedBuffer<std::byte>(count(o.rows, 3, heads.channels()) * size_of(o.key));
  committed_.assign(count(o.rows), Depth{0});
  checkpoint_.assign(count(o.rows), Depth{0});
  for (int row = 0; row < o.rows; ++row) base_.push_back(SlotId{row});
  home_ = base_;
  qkv_ = AlignedBuffer<float>(count(tokens, heads.channels()));
  gate_ = AlignedBuffer<float>(count(tokens, heads.value_heads, heads.gate_width()));
  beta_ = AlignedBuffer<float>(count(tokens, heads.value_heads));
  conv_weight_ = AlignedBuffer<float>(count(heads.channels(), kConvWidth));
  out_ = AlignedBuffer<float>(count(tokens, heads.value_heads, kValueDim));
  conv_out_ = AlignedBuffer<float>(count(tokens, heads.channels()));
  out_.fill_bytes(0xff);
  conv_out_.fill_bytes(0xff);
  Random random(o.seed);
  for (float& x : qkv_.span()) x = round_to_bf16(random.uniform(-1, 1));
  fill(gate_, random, -0.3f, -0.001f);
  fill(beta_, random, 0.1f, 0.9f);
  fill(conv_weight_, random, -0.5f, 0.5f);
}

void LayerSet::place(std::size_t row, Cursor cursor) {
  committed_[row] = cursor.committed;
  checkpoint_[row] = cursor.checkpoint;
  Random random(options_.seed + 7919 * (row + 1));
  const HeadShape& heads = options_.heads;
  const std::size_t state = heads.state_elements();
  for (std::size_t i = row * state; i < (row + 1) * state; ++i) {
    store(states_.data(), state_type_, i, random.uniform(-0.05f, 0.05f));
  }
  const std::size_t ring = count(options_.geometry.ring_rows());
  const std::size_t key_rows = ring * count(heads.key_heads);
  const std::size_t value_rows = ring * count(heads.value_heads);
  for (std::size_t i = row * key_rows * kKeyDim; i < (row + 1) * key_rows * kKeyDim; ++i) {
    store(keys_.data(), options_.key, i, round_to_bf16(random.uniform(-1, 1)));
  }
  for (std::size_t i = row * key_rows; i < (row + 1) * key_rows; ++i) {
    double sum = 1e-6;
    for (std::size_t c = 0; c < kKeyDim; ++c) {
      const std::size_t at = i * kKeyDim + c;
      const double x = options_.key == DType::bf16
                           ? to_float(reinterpret_cast<const bf16*>(keys_.data())[at])
                           : reinterpret_cast<const float*>(keys_.data())[at];
      sum += x * x;
    }
    key_scales_[i] = static_cast<float>(1.0 / std::sqrt(sum));
  }
  for (std::size_t i = row * value_rows * kValueDim; i < (row + 1) * value_rows * kValueDim; ++i) {
    store(corrections_.data(), correction_type_, i, random.uniform(-1, 1));
  }
  const std::size_t width = value_rows * count(heads.gate_width());
  for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
    const float gate = random.uniform(-0.3f, -0.001f);
    gates_[i] = gate_form_ == GateForm::log ? gate : std::exp(gate);
  }
}

StateView LayerSet::states() const {
  return {states_.data(), state_type_, options_.heads.state_elements(), options_.rows};
}

RingView LayerSet::rings() const {
  RingView view;
  view.keys = keys_.data();
  view.key_type = options_.key;
  view.key_scales = key_scales_.data();
  view.corrections = corrections_.data();
  view.correction_type = correction_type_;
  view.gates = gates_.data();
  view.rows = options_.rows;
  view.ring_rows = options_.geometry.ring_rows();
  return view;
}

CursorView LayerSet::cursors() const {
  return {committed_.data(), checkpoint_.data(), base_.data(), home_.data(), options_.rows};
}

StepArgs LayerSet::step(std::span<const RowTokens> rows) const {
  StepArgs args;
  args.shape = options_.heads;
  args.geometry = options_.geometry;
  args.states = states();
  args.rings = rings();
  args.cursors = cursors();
  args.rows = rows;
  args.qkv = qkv_.data();
  args.gate = gate_.data();
  args.beta = beta_.data();
  args.out = out_.data();
  return args;
}

ConvArgs LayerSet::conv(std::span<const RowTokens> rows) const {
  const int channels = options_.heads.channels();
  ConvArgs args;
  args.geometry = options_.geometry;
  args.rings = {conv_inputs_.data(), options_.key, options_.rows, options_.geometry.conv_rows(),
                channels};
  args.tails = {conv_tails_.data(), options_.key, count(3, channels), options_.rows, channels};
  args.cursors = cursors();
  args.rows = rows;
  args.weight = conv_weight_.data();
  args.input = qkv_.data();
  args.out = conv_out_.data();
  args.round_to = options_.key;
  return args;
}

}  // namespace replayssm::bench
