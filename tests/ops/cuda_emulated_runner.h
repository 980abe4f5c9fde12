// Runs the CUDA operations' device code on the CPU over an Image.
#pragma once

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "cuda_step_image.h"
#include "ops/cuda/advance.cuh"
#include "ops/cuda/chunk_tail.cuh"
#include "ops/cuda/chunk_unit.cuh"
#include "ops/cuda/fold_unit.cuh"
#include "ops/cuda/instances.h"
#include "ops/cuda/step_unit.cuh"
#include "ops/cuda/window_unit.cuh"

namespace replayssm::cuda::test {

// Pointers into the image's own memory; on the GPU the same with device addresses.
inline StepArgs host_args(Image& m) {
  StepArgs a;
  a.batch = {m.row.data(),  m.committed.data(), m.checkpoint.data(),  m.base.data(),
             m.home.data(), m.o.entries,        m.first_token.data(), m.tokens.data()};
  a.state = {m.states.data(), m.slot_stride};
  a.ring = {m.keys.data(), m.key_scales.data(), m.corrections.data(), m.gates.data()};
  a.qkv = m.qkv.data();
  a.token_stride = m.token_stride;
  a.gate = m.gate.data();
  a.beta = m.beta.data();
  if (m.o.projected_gates) {
    a.a_log = m.a_log.data();
    a.dt_bias = m.dt_bias.data();
    a.lower_bound = m.o.lower_bound;
  }
  a.out = m.out.data();
  a.out_f32 = 1;
  a.key_heads = m.o.heads.key_heads;
  a.value_heads = m.o.heads.value_heads;
  a.ring_rows = m.o.ring_rows;
  a.fold_block = m.o.fold_block;
  a.query_scale = 0.08838834764831845f;
  a.settled = m.o.settled ? 1 : 0;
  return a;
}

// Blocks run one after the other, and under ThreadSanitizer know nothing of each other.
template <class Body>
void emulate(const StepPlan& plan, Body&& body) {
  ptx::announced_bytes = ptx::copied_bytes = 0;
  const auto free_all = [](unsigned char* memory) { std::free(memory); };
  // What blocks have touched is freed at the end, for the sanitizer's sake.
  std::vector<std::unique_ptr<unsigned char, decltype(free_all)>> memory;
  std::vector<std::unique_ptr<emulated::Block>> done;
  const char end = 0;
  for (int block = 0; block < plan.blocks; ++block) {
    auto* const shared = static_cast<unsigned char*>(
        std::aligned_alloc(1024, (plan.shared_bytes + 1023) / 1024 * 1024));
    memory.emplace_back(shared, free_all);
    std::memset(shared, 0xff, plan.shared_bytes);
    done.push_back(std::make_unique<emulated::Block>(block, plan.blocks, plan.threads, &end,
                                                     [&body, shared] { body(shared); }));
    done.back()->run();
    if (!emulated::kOrderChecked) done.clear(), memory.clear();
  }
  emulated::acquire(&end);
  if (ptx::announced_bytes != ptx::copied_bytes) {
    throw std::runtime_error("a barrier announces other bytes than are copied to it");
  }
}

inline void run_window_step(const StepPlan& plan, Image& m) {
  const StepArgs args = host_args(m);
  auto run = [&]<class Layout>(Layout) {
    emulate(plan, [&](unsigned char* shared) {
      step_block<Layout>(args, shared, plan.stages, plan.groups);
    });
  };
  auto run_windows = [&]<class Layout>(Layout) {
    emulate(plan, [&](unsigned char* shared) {
      window_block<Layout>(args, shared, plan.stages, plan.groups);
    });
  };
  if (plan.window > 1) {
    plan.gate == GateKind::gdn ? visit_window_layout<GateKind::gdn>(plan, run_windows)
                               : visit_window_layout<GateKind::kda>(plan, run_windows);
  } else {
    plan.record_tile == 16 ? visit_layout_of_tile<16>(plan, run)
                           : visit_layout_of_tile<32>(plan, run);
  }
}

template <GateKind kGate>
void run_chunks(const StepPlan& plan, const StepArgs& args) {
  visit_chunk_layout<kGate>(plan, [&]<class Layout>(Layout) {
    emulate(plan, [&](unsigned char* shared) { chunk_block<Layout>(args, shared); });
  });
  StepPlan tail = plan;
  tail.blocks = chunk_tail_warps(args);
  tail.threads = 32;
  emulate(tail, [&](unsigned char*) { append_chunk_tail<kGate>(args, ptx::block()); });
}

inline void run_chunk_prefill(const StepPlan& plan, Image& m) {
  plan.gate == GateKind::gdn ? run_chunks<GateKind::gdn>(plan, host_args(m))
                             : run_chunks<GateKind::kda>(plan, host_args(m));
}

inline void run_packed_step(const StepPlan& plan, Image& m) {
  const StepArgs args = host_args(m);
  visit_layout_of_tile<0>(plan, [&]<class Layout>(Layout) {
    emulate(plan, [&](unsigned char* shared) {
      step_block<Layout>(args, shared, plan.stages, plan.groups);
    });
  });
}

inline void run_fold(const StepPlan& plan, const FoldArgs& args) {
  auto run = [&]<class Layout>(Layout) {
    emulate(plan, [&](unsigned char* shared) {
      fold_block<Layout>(args, shared, plan.stages, plan.groups);
    });
  };
  switch (plan.record_tile) {
    case 16:
      visit_full_layout_of_tile<16>(plan, run);
      break;
    case 32:
      visit_full_layout_of_tile<32>(plan, run);
      break;
    default:
      visit_full_layout_of_tile<64>(plan, run);
  }
}

inline void run_advance(Image& m, bool packed) {
  const AdvanceArgs args{m.row.data(),        m.accepted.data(), m.committed.data(),
                         m.checkpoint.data(), m.base.data(),     m.home.data(),
                         m.o.entries,         m.o.fold_block,    packed ? 1 : 0};
  for (int e = 0; e < m.o.entries; ++e) advance_entry(args, e);
}

}  // namespace replayssm::cuda::test
