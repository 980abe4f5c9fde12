// fold: records of one value head of one layer into a slot or a buffer.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/fold.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/cpu/record_weights-inl.h"
#include "ops/cpu/ring_access-inl.h"
#include "ops/cpu/state_stripe-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {

void prepare_records(const FoldTask& task) {
  const FoldArgs& args = *task.args;
  const RingView& ring = args.rings[task.layer];
  StepScratch& s = *task.scratch;
  for (int j = 0; j < task.row->records; ++j) {
    const int r = args.geometry.ring_row(task.row->from + j);
    const std::size_t room = static_cast<std::size_t>(j) * kKeyDim;
    const RingKey key =
        ring_key(args.shape, ring, task.row->row, task.value_head / args.shape.group(), r);
    s.keys[j] = key.as_float(s.key_rows.data() + room);
    s.key_scales[j] = *key.scale;
    const RingCorrection record =
        ring_correction(args.shape, ring, task.row->row, task.value_head, r);
    s.decays[j] = record.decay;
    s.corrections[j] = record.as_float(s.correction_rows.data() + room);
  }
}

// A stripe [K, 32] into rows value .. value + 31 of a matrix [V, K].
void transpose_stripe(const float* stripe, int value, float* matrix) {
  for (int v = 0; v < kStripe; ++v) {
    for (int k = 0; k < kKeyDim; ++k) matrix[(value + v) * kKeyDim + k] = stripe[k * kStripe + v];
  }
}

template <class StateT>
void fold_stripes(const FoldTask& task) {
  const FoldArgs& args = *task.args;
  const FoldRow& row = *task.row;
  const StateView& states = args.states[task.layer];
  StepScratch& s = *task.scratch;
  // Records beyond one block are folded block by block, rounded to the state's type in between, as
  // steps would have folded them.
  const int block = args.geometry.fold_block();
  const int blocks = std::max(1, (row.records + block - 1) / block);
  const auto records_of = [&](int b) { return std::min(block, row.records - b * block); };
  for (int b = 0; b < blocks; ++b) {
    weigh_fold(s, args.shape.gate, b * block, records_of(b),
               s.fold_keys.data() + static_cast<std::size_t>(b) * block * kKeyDim,
               s.fold_decays.data() + static_cast<std::size_t>(b) * kKeyDim);
  }
  const auto slot_stripe = [&](SlotId slot, int stripe) {
    return static_cast<StateT*>(states.data) + slot.value * states.slot_stride +
           task.value_head * kHeadElements + stripe * kStripeElements;
  };
  StateT* scratch = reinterpret_cast<StateT*>(s.state.data());
  float* rows = row.buffer.empty() ? nullptr
                                   : row.buffer.data() + task.layer * args.shape.state_elements() +
                                         task.value_head * kHeadElements;
  for (int stripe = 0; stripe < kStripes; ++stripe) {
    const StateT* source = row.from.tokens == 0 ? nullptr : slot_stripe(row.source, stripe);
    for (int b = 0; b < blocks; ++b) {
      const float* decays = s.fold_decays.data() + static_cast<std::size_t>(b) * kKeyDim;
      const float* keys = s.fold_keys.data() + static_cast<std::size_t>(b) * block * kKeyDim;
      const float* const* corrections = s.corrections.data() + b * block;
      if (b + 1 < blocks) {
        update(source, scratch, decays, keys, corrections, stripe * kStripe, records_of(b),
               s.ahead);
        source = scratch;
      } else if (rows == nullptr) {
        update(source, slot_stripe(row.destination, stripe), decays, keys, corrections,
               stripe * kStripe, records_of(b), s.ahead);
      } else {
        update(source, s.products.data(), decays, keys, corrections, stripe * kStripe,
               records_of(b), s.ahead);
        transpose_stripe(s.products.data(), stripe * kStripe, rows);
      }
    }
  }
}

void fold_value_head(const FoldTask& task) {
  task.scratch->ahead.clear();  // heads are folded one by one: nothing is known to follow
  prepare_records(task);
  if (task.args->states[task.layer].type == DType::bf16)
    fold_stripes<bf16>(task);
  else
    fold_stripes<float>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm::cpu {

HWY_EXPORT(fold_value_head);

void fold_value_head(const FoldTask& task) { HWY_DYNAMIC_DISPATCH(fold_value_head)(task); }

}  // namespace replayssm::cpu
#endif
