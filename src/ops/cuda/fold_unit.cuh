// The fold of all layers in one launch: units are (layer, entry, head, value rows), streamed through
// the same stages as a decode step and folded by the same code.
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

  // depth: the depth folded from; checkpoint: records.
  __device__ Entry load(int unit) const {
    const int entry = unit / (args.value_heads * Layout::kParts) % args.entries;
    return {args.row[entry], args.from[entry], args.records[entry], args.source[entry],
            args.destination[entry]};
  }

  __device__ void fill(int unit, const Entry& entry, typename Layout::Stage& stage,
                       uint64_t* full) const {
    using State = typename Layout::State;
    const int first_value = unit % Layout::kParts * Layout::kRows;
    const int value_head = unit / Layout::kParts % args.value_heads;
    const int place = unit / Layout::kParts / args.value_heads % args.entries;
    const int layer_index = unit / Layout::kParts / args.value_heads / args.entries;
    const bool live = entry.row >= 0 && entry.source >= 0;
    const int records = live ? entry.checkpoint : 0;
    const bool has_state = live && entry.depth > 0;
    if (!live) {
      if (ptx::lane() == 0) {
        stage.unit.kind = UnitKind::null_row;
        ptx::barrier_arrive_expect(full, 0);
      }
      ptx::copies_arrive(full);
      return;
    }
    const FoldLayer layer = args.layers[layer_index];
    const int64_t in_slot = (static_cast<int64_t>(value_head) * kValueDim + first_value) * kKeyDim;
    State* const states = static_cast<State*>(layer.state.data);
    if (ptx::lane() == 0) {
      Unit& u = stage.unit;
      u.kind = UnitKind::live;
      u.records = records;
      u.fold = 1;
      u.has_state = has_state;
      u.value_head = value_head;
      if (entry.destination >= 0) {
        u.state_out = states + entry.destination * layer.state.slot_stride + in_slot;
      } else {
        u.state_out = static_cast<State*>(args.buffer[place]) +
                      static_cast<int64_t>(layer_index) * args.value_heads * kValueDim * kKeyDim +
                      in_slot;
      }
      ptx::barrier_arrive_expect(full, (has_state ? static_cast<uint32_t>(sizeof(stage.state)) : 0u) +
                                           record_bytes<Layout>(records));
    }
    ptx::sync_warp();
    if (has_state) {
      ptx::copy_block(stage.state, states + entry.source * layer.state.slot_stride + in_slot,
                      sizeof(stage.state), full, 0);
    }
    copy_records<Layout>(stage,
                         head_ring<Layout>(layer.ring, entry.row, args.key_heads, args.value_heads,
                                           value_head, args.ring_rows),
                         entry.depth & (args.ring_rows - 1), records, args.ring_rows, first_value,
                         full);
    ptx::copies_arrive(full);
  }
};

template <class Layout>
__device__ __forceinline__ bool fold_unit(typename Layout::Stage& stage, uint64_t* empty,
                                          typename Layout::Exchange& exchange, float* weights,
                                          int warp, int group_barrier) {
  if (stage.unit.kind == UnitKind::null_row) {
    release<Layout>(empty, false);
    return false;
  }
  const int records = stage.unit.records;
  FoldOperands<Layout> folding{weights, 1.0f, exchange.decay, records, stage.unit.has_state != 0,
                               static_cast<typename Layout::State*>(stage.unit.state_out)};
  if constexpr (Layout::kKda) {
    const int channel = warp * 32 + ptx::lane();
    exchange.decay[channel] = decay_keys_in_place<Layout>(stage, records, channel);
    ptx::sync_group(group_barrier);
  } else {
    const HeadDecays<Layout> decays = head_decays<Layout>(stage, records, 0.0f);
    folding.head_decay = decays.total;
    write_weights<Layout>(decays, weights);
  }
  if constexpr (Layout::kMma) {
    product_mma<Layout, true, false>(stage, InputFragments{}, warp, &folding);
  } else {
    product_fma<Layout, true, false>(stage, float4{}, float4{}, warp, &folding);
  }
  release<Layout>(empty, Layout::kKda);
  return true;
}

template <class Layout>
__device__ __forceinline__ void fold_block(const FoldArgs& args, unsigned char* shared, int stages,
                                           int groups) {
  Pipeline<Layout> pipeline(shared, stages, groups);
  ptx::allow_next_launch();
  pipeline.init();
  const int warp = ptx::thread() / 32;
  if (warp == groups * kWarpsPerGroup) {
    produce<Layout>(FoldUnits<Layout>{args}, pipeline);
    return;
  }
  const int group = warp / kWarpsPerGroup, warp_in_group = warp % kWarpsPerGroup;
  typename Layout::Scratch& scratch = pipeline.scratch[group];
  consume_units<Layout>(pipeline, group,
                        [&](typename Layout::Stage& stage, uint64_t* empty, int turn) {
                          return fold_unit<Layout>(stage, empty, scratch.exchange[turn],
                                                   scratch.coefficients[warp_in_group],
                                                   warp_in_group, 1 + group);
                        });
}

}  // namespace replayssm::cuda
