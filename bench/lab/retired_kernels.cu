#include "retired_kernels.h"

#include "ops/cuda/instances.h"
#include "ops/cuda/launch_kernel.cuh"
#include "ops/cuda/step_unit.cuh"

namespace replayssm::cuda::lab {
namespace {

template <class Layout>
__global__ void __launch_bounds__(kGroupThreads)
    unpipelined_kernel(const __grid_constant__ StepArgs args, int, int) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Pipeline<Layout> pipeline(shared, 1, 1);
  pipeline.init();
  const int warp = ptx::thread() / 32;
  typename Layout::Stage& stage = pipeline.stages[0];
  if (warp == 0) {
    const StepUnits<Layout> units{args};
    wait_then_allow_next();
    Unit& unit = pipeline.units[0];
    if (ptx::lane() == 0) {
      Lookup lookup;
      units.look_up_row(ptx::block(), lookup);
      units.look_up_cursor(ptx::block(), lookup);
      units.describe(ptx::block(), lookup, unit);
    }
    ptx::sync_warp();
    fetch_state<Layout>(lanes_of_warp(), units, unit, stage, pipeline.full);
    if (unit.kind == UnitKind::live) units.copy_inputs(lanes_of_warp(), unit, stage);
    ptx::copies_arrive(pipeline.full);
  }
  ptx::barrier_wait(pipeline.full, 0);
  typename Layout::Scratch& scratch = pipeline.scratch[0];
  step_unit<Layout>(args, pipeline.units[0], stage, pipeline.empty, scratch.exchange[0],
                    scratch.coefficients[warp], warp, 1);
}

// Version 1's copies of a unit: a bulk copy for the keys, one for each row of d (the unit's part of
// it), one each for q, k and v.
template <class Layout>
__device__ void copy_in_many(const StepUnits<Layout>& units, const Unit& u,
                             typename Layout::Stage& stage, uint64_t* full) {
  using State = typename Layout::State;
  constexpr uint32_t kRowBytes = Layout::kRows * sizeof(State);
  constexpr uint32_t kKeyBytes = kKeyDim * sizeof(bf16);
  const int ring_rows = units.args.ring_rows;
  const uint32_t records = static_cast<uint32_t>(u.records);
  if (ptx::lane() == 0) {
    ptx::barrier_arrive_expect(
        full, (u.has_state ? sizeof(stage.state) : 0) + 2 * kKeyBytes + sizeof(stage.v) +
                  records * (kRowBytes + kKeyBytes + (Layout::kKda ? sizeof(stage.gate) : 0)));
    if (u.has_state) ptx::copy_block(stage.state, u.state, sizeof(stage.state), full);
    ptx::copy_block(stage.q, u.q, kKeyBytes, full);
    ptx::copy_block(stage.k, u.k, kKeyBytes, full);
    ptx::copy_block(stage.v, u.v, sizeof(stage.v), full);
  }
  ptx::sync_warp();
  for (int j = ptx::lane(); j < u.records; j += 32) {
    const int row = (u.first_row + j) & (ring_rows - 1);
    ptx::copy_block(stage.keys + j * kKeyDim, u.keys + row * kKeyDim, kKeyBytes, full);
    ptx::copy_block(stage.corrections + j * kValueDim + u.first_value,
                    static_cast<const State*>(u.corrections) + row * kValueDim + u.first_value,
                    kRowBytes, full);
    if constexpr (Layout::kKda) {
      ptx::copy_block(stage.gates + j * kKeyDim, u.gates + row * kKeyDim, sizeof(stage.gate), full);
    }
  }
  for (int j = ptx::lane(); j < Layout::kRecords; j += 32) {
    const int row = (u.first_row + j) & (ring_rows - 1);
    ptx::copy_float(stage.key_scales + j, u.key_scales + row, j < u.records);
    if constexpr (!Layout::kKda) ptx::copy_float(stage.gates + j, u.gates + row, j < u.records);
  }
  if constexpr (Layout::kKda) {
    ptx::copy_small(stage.gate, u.gate, sizeof(stage.gate));
  } else {
    if (ptx::lane() == 0) ptx::copy_float(stage.gate, u.gate, true);
  }
  if (ptx::lane() == 0) ptx::copy_float(&stage.beta, u.beta, true);
}

template <class Layout>
__device__ void produce_one_by_one(const StepUnits<Layout>& units,
                                   const Pipeline<Layout>& pipeline) {
  wait_then_allow_next();
  const int count = units.count(), stride = ptx::blocks();
  const int mine = (count - ptx::block() + stride - 1) / stride;
  int stage = 0, parity = 1;
  for (int i = 0; i < mine + pipeline.groups; ++i) {
    ptx::barrier_wait(pipeline.empty + stage, parity);
    Unit& unit = pipeline.units[i % Layout::kUnitTable];
    if (ptx::lane() == 0) {
      unit.kind = UnitKind::end;
      if (i < mine) {
        const int index = ptx::block() + i * stride;
        Lookup lookup;
        units.look_up_row(index, lookup);
        units.look_up_cursor(index, lookup);
        units.describe(index, lookup, unit);
      }
    }
    ptx::sync_warp();
    uint64_t* const full = pipeline.full + stage;
    if (unit.kind == UnitKind::live) {
      copy_in_many<Layout>(units, unit, pipeline.stages[stage], full);
    } else if (ptx::lane() == 0) {
      ptx::barrier_arrive(full);
    }
    ptx::copies_arrive(full);
    if (++stage == pipeline.stage_count) {
      stage = 0;
      parity ^= 1;
    }
  }
}

template <class Layout>
__global__ void __launch_bounds__(2 * kGroupThreads + 32, 1)
    many_copies_kernel(const __grid_constant__ StepArgs args, int stages, int groups) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Pipeline<Layout> pipeline(shared, stages, groups);
  pipeline.init();
  const int warp = ptx::thread() / 32;
  if (warp == groups * kWarpsPerGroup) {
    produce_one_by_one<Layout>(StepUnits<Layout>{args}, pipeline);
    return;
  }
  const int group = warp / kWarpsPerGroup, warp_in_group = warp % kWarpsPerGroup;
  typename Layout::Scratch& scratch = pipeline.scratch[group];
  consume_units<Layout>(
      pipeline, group,
      [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty, int turn) {
        return step_unit<Layout>(args, unit, stage, empty, scratch.exchange[turn],
                                 scratch.coefficients[warp_in_group], warp_in_group, 1 + group);
      });
}

}  // namespace

Status launch_unpipelined(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return visit_full_layout_of_tile<16>(plan, [&]<class Layout>(Layout) {
    StepPlan block_each = plan;
    block_each.blocks = args.batch.entries * args.value_heads * Layout::kParts;
    block_each.threads = kGroupThreads;
    block_each.shared_bytes = Layout::bytes(1, 1);
    return launch_with_plan<StepArgs>(unpipelined_kernel<Layout>, block_each, args, stream);
  });
}

Status launch_many_copies(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return visit_full_layout_of_tile<16>(plan, [&]<class Layout>(Layout) {
    return launch_with_plan<StepArgs>(many_copies_kernel<Layout>, plan, args, stream);
  });
}

}  // namespace replayssm::cuda::lab
