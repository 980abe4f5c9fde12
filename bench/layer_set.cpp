#include "layer_set.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

void fill(std::span<float> values, Random& random, float low, float high) {
  for (float& x : values) x = random.uniform(low, high);
}

}  // namespace

std::size_t LayerSet::lay_out(const SetOptions& o, DType state, std::byte* memory, Parts& parts) {
  std::size_t taken = 0;
  const auto take = [&]<class T>(std::span<T>& part, std::size_t size) {
    constexpr std::size_t kLine = 64;
    if (memory != nullptr) part = {reinterpret_cast<T*>(memory + taken), size};
    taken += (size * sizeof(T) + kLine - 1) / kLine * kLine;
  };
  const HeadShape& heads = o.heads;
  const int ring = o.geometry.ring_rows();
  const int tokens = o.rows * o.tokens_per_row;
  take(parts.states, count(o.rows) * heads.state_elements() * size_of(state));
  take(parts.keys, count(o.rows, heads.key_heads, ring, kKeyDim) * size_of(o.key));
  take(parts.key_scales, count(o.rows, heads.key_heads, ring));
  take(parts.corrections, count(o.rows, heads.value_heads, ring, kValueDim) * size_of(state));
  take(parts.gates, count(o.rows, heads.value_heads, ring, heads.gate_width()));
  take(parts.conv_inputs, count(o.rows, o.geometry.conv_rows(), heads.channels()) * size_of(o.key));
  take(parts.conv_tails, count(o.rows, 3, heads.channels()) * size_of(o.key));
  take(parts.qkv, count(tokens, heads.channels()));
  take(parts.gate, count(tokens, heads.value_heads, heads.gate_width()));
  take(parts.beta, count(tokens, heads.value_heads));
  take(parts.conv_weight, count(heads.channels(), kConvWidth));
  take(parts.out, count(tokens, heads.value_heads, kValueDim));
  take(parts.conv_out, count(tokens, heads.channels()));
  return taken;
}

std::size_t LayerSet::bytes_of(const SetOptions& options, const LinearOps& ops) {
  Parts parts;
  return lay_out(options, ops.state_type_for(options.state), nullptr, parts);
}

LayerSet::LayerSet(const SetOptions& options, const LinearOps& ops)
    : LayerSet(options, ops, nullptr) {}

LayerSet::LayerSet(const SetOptions& o, const LinearOps& ops, std::byte* memory)
    : own_(memory == nullptr ? bytes_of(o, ops) : 0),
      options_(o),
      state_type_(ops.state_type_for(o.state)),
      gate_form_(ops.gate_form()) {
  lay_out(o, state_type_, memory == nullptr ? own_.data() : memory, part_);
  committed_.assign(count(o.rows), Depth{0});
  checkpoint_.assign(count(o.rows), Depth{0});
  for (int row = 0; row < o.rows; ++row) base_.push_back(SlotId{row});
  home_ = base_;
  // What an operation does not write shows.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::fill(part_.out.begin(), part_.out.end(), nan);
  std::fill(part_.conv_out.begin(), part_.conv_out.end(), nan);
  Random random(o.seed);
  for (float& x : part_.qkv) x = round_to_bf16(random.uniform(-1, 1));
  fill(part_.gate, random, -0.3f, -0.001f);
  fill(part_.beta, random, 0.1f, 0.9f);
  fill(part_.conv_weight, random, -0.5f, 0.5f);
}

void LayerSet::place(std::size_t row, Cursor cursor) {
  committed_[row] = cursor.committed;
  checkpoint_[row] = cursor.checkpoint;
  Random random(options_.seed + 7919 * (row + 1));
  const HeadShape& heads = options_.heads;
  const std::size_t state = heads.state_elements();
  for (std::size_t i = row * state; i < (row + 1) * state; ++i) {
    store(part_.states.data(), state_type_, i, random.uniform(-0.05f, 0.05f));
  }
  const std::size_t ring = count(options_.geometry.ring_rows());
  const std::size_t key_rows = ring * count(heads.key_heads);
  const std::size_t value_rows = ring * count(heads.value_heads);
  for (std::size_t i = row * key_rows * kKeyDim; i < (row + 1) * key_rows * kKeyDim; ++i) {
    store(part_.keys.data(), options_.key, i, round_to_bf16(random.uniform(-1, 1)));
  }
  for (std::size_t i = row * key_rows; i < (row + 1) * key_rows; ++i) {
    double sum = 1e-6;
    for (std::size_t c = 0; c < kKeyDim; ++c) {
      const std::size_t at = i * kKeyDim + c;
      const double x = options_.key == DType::bf16
                           ? to_float(reinterpret_cast<const bf16*>(part_.keys.data())[at])
                           : reinterpret_cast<const float*>(part_.keys.data())[at];
      sum += x * x;
    }
    part_.key_scales[i] = static_cast<float>(1.0 / std::sqrt(sum));
  }
  for (std::size_t i = row * value_rows * kValueDim; i < (row + 1) * value_rows * kValueDim; ++i) {
    store(part_.corrections.data(), state_type_, i, random.uniform(-1, 1));
  }
  const std::size_t width = value_rows * count(heads.gate_width());
  for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
    const float gate = random.uniform(-0.3f, -0.001f);
    part_.gates[i] = gate_form_ == GateForm::log ? gate : std::exp(gate);
  }
}

StateView LayerSet::states() const {
  return {part_.states.data(), state_type_, options_.heads.state_elements(), options_.rows};
}

RingView LayerSet::rings() const {
  RingView view;
  view.keys = part_.keys.data();
  view.key_type = options_.key;
  view.key_scales = part_.key_scales.data();
  view.corrections = part_.corrections.data();
  view.correction_type = state_type_;
  view.gates = part_.gates.data();
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
  args.qkv = part_.qkv.data();
  args.gate = part_.gate.data();
  args.beta = part_.beta.data();
  args.out = part_.out.data();
  return args;
}

ConvArgs LayerSet::conv(std::span<const RowTokens> rows) const {
  const int channels = options_.heads.channels();
  ConvArgs args;
  args.geometry = options_.geometry;
  args.rings = {part_.conv_inputs.data(), options_.key, options_.rows,
                options_.geometry.conv_rows(), channels};
  args.tails = {part_.conv_tails.data(), options_.key, count(3, channels), options_.rows, channels};
  args.cursors = cursors();
  args.rows = rows;
  args.weight = part_.conv_weight.data();
  args.input = part_.qkv.data();
  args.out = part_.conv_out.data();
  args.round_to = options_.key;
  return args;
}

}  // namespace replayssm::bench
