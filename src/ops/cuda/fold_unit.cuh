// The fold of all layers in one launch: units are (layer, entry, head, value rows), streamed
// through the same stages as a decode step and folded by the same code.
#pragma once

#include "ops/cuda/producer.cuh"
#include "ops/cuda/state_product.cuh"

namespace replayssm::cuda {

template <class Layout>
struct FoldUnits {
  const FoldArgs& args;

  __device__ int count() const {
    return args.layer_count * args.entries * args.value_heads * Layout::kParts;
  }

  __device__ int ring_rows() const { return args.ring_rows; }
  // The previous launch may be a step that appends to the rings.
  __device__ bool settled() const { return false; }

  // depth: the depth folded from; checkpoint: the number of records.
  __device__ void look_up_row(int unit, Lookup& l) const { l.row = args.row[entry_of(unit)]; }
  __device__ void look_up_cursor(int unit, Lookup& l) const {
    const int entry = entry_of(unit);
    l.depth = args.from[entry];
    l.checkpoint = args.records[entry];
    l.source = args.source[entry];
    l.destination = args.destination[entry];
  }

  // One lane.
  __device__ void describe(int unit, const Lookup& l, Unit& u) const {
    using State = typename Layout::State;
    const int first_value = unit % Layout::kParts * Layout::kRows;
    const int value_head = unit / Layout::kParts % args.value_heads;
    const int layer_index = unit / Layout::kParts / args.value_heads / args.entries;
    const int row = l.row, source = l.source;
    u.kind = UnitKind::null_row;
    u.records = 0;
    u.has_state = 0;
    if (row < 0 || source < 0) return;
    const int from = l.depth, destination = l.destination;
    const FoldLayer& layer = args.layers[layer_index];
    const int64_t in_slot = (static_cast<int64_t>(value_head) * kValueDim + first_value) * kKeyDim;
    State* const states = static_cast<State*>(layer.state.data) + in_slot;
    u.kind = UnitKind::live;
    u.records = l.checkpoint;
    u.has_state = from > 0;
    u.value_head = value_head;
    u.first_value = first_value;
    u.first_row = from & (args.ring_rows - 1);
    u.state = states + source * layer.state.slot_stride;
    if (destination >= 0) {
      u.state_out = states + destination * layer.state.slot_stride;
    } else {
      u.state_out = static_cast<State*>(args.buffer[entry_of(unit)]) +
                    static_cast<int64_t>(layer_index) * args.value_heads * kValueDim * kKeyDim +
                    in_slot;
    }
    describe_rings<Layout>(u, layer.ring, row, args.key_heads, args.value_heads, args.ring_rows);
  }

  __device__ void copy_inputs(const Copiers&, const Unit&, typename Layout::Stage&) const {}

 private:
  __device__ int entry_of(int unit) const {
    return unit / Layout::kParts / args.value_heads % args.entries;
  }
};

template <class Layout>
__device__ __forceinline__ bool fold_unit(const Unit& unit, typename Layout::Stage& stage,
                                          uint64_t* empty, typename Layout::Exchange& exchange,
                                          float* weights, int warp, int group_barrier) {
  if (unit.kind == UnitKind::null_row) {
    release(empty);
    return false;
  }
  const int records = unit.records;
  const StagedRecords<Layout> staged = records_from<Layout>(stage, 0);
  FoldOperands<Layout> folding{staged,
                               weights,
                               1.0f,
                               exchange.decay,
                               records,
                               unit.has_state != 0,
                               unit.first_value,
                               static_cast<typename Layout::State*>(unit.state_out)};
  if constexpr (Layout::kKda) {
    const int channel = warp * 32 + ptx::lane();
    exchange.decay[channel] = decay_keys_in_place<Layout>(staged, records, channel);
    ptx::sync_group(group_barrier);
  } else {
    const HeadDecays<Layout> decays = head_decays<Layout>(staged, records, 1.0f);
    folding.head_decay = decays.total;
    write_weights<Layout>(decays, weights);
  }
  fold_warp_rows<Layout>(stage, warp, folding);
  release_written(empty);
  return true;
}

template <class Layout>
__device__ __forceinline__ void fold_block(const FoldArgs& args, unsigned char* shared, int stages,
                                           int groups) {
  run_units<Layout>(FoldUnits<Layout>{args}, shared, stages, groups,
                    [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty,
                        typename Layout::Scratch& scratch, int turn, int warp, int group_barrier) {
                      return fold_unit<Layout>(unit, stage, empty, scratch.exchange[turn],
                                               scratch.coefficients[warp], warp, group_barrier);
                    });
}

}  // namespace replayssm::cuda
