// The CPU backend: checks arguments, cuts an operation into tasks that write disjoint memory, and
// hands them to the threads. No task's result depends on how many threads there are.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/bfloat16.h"
#include "ops/advance.h"
#include "ops/check_arguments.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu_isa.h"

namespace replayssm {
namespace cpu {
namespace {

// Enough for threads of unequal speed to finish together.
constexpr std::size_t kRunsPerThread = 4;

class CpuOps final : public LinearOps {
 public:
  explicit CpuOps(ThreadPool& pool) : pool_(pool), name_(fmt::format("cpu {}", cpu_isa())) {
    for (int i = 0; i < pool.threads(); ++i) scratch_.push_back(std::make_unique<StepScratch>());
  }

  std::string_view name() const override { return name_; }
  GateForm gate_form() const override { return GateForm::decay; }

  Status gates(const GateArgs& args) override {
    REPLAYSSM_TRY(check_.gates(args));
    constexpr int kTokens = 8;
    const int tasks = (args.tokens + kTokens - 1) / kTokens;
    pool_.parallel_for(static_cast<std::size_t>(tasks), [&](std::size_t i, int) {
      const int first = static_cast<int>(i) * kTokens;
      gate_tokens(args, first, std::min(kTokens, args.tokens - first));
    });
    return {};
  }

  Status packed_step(const StepArgs& args) override { return step(args, StepKind::packed); }
  Status window_step(const StepArgs& args) override { return step(args, StepKind::window); }
  Status chunk_prefill(const StepArgs& args) override { return step(args, StepKind::chunk); }

  Status fold(const FoldArgs& args) override {
    REPLAYSSM_TRY(check_.fold(args));
    const std::size_t heads = args.shape.value_heads;
    const std::size_t per_row = heads * args.states.size();
    pool_.parallel_for(args.rows.size() * per_row, [&](std::size_t i, int thread) {
      const FoldRow& row = args.rows[i / per_row];
      if (row.source == kNullSlot) return;
      fold_value_head({&args, &row, static_cast<int>(i % per_row / heads),
                       static_cast<int>(i % heads), scratch_[thread].get()});
    });
    return {};
  }

  Status advance(const AdvanceArgs& args) override {
    REPLAYSSM_TRY(check_.advance(args));
    advance_on_host(args);
    return {};
  }

  Status conv_window(const ConvArgs& args) override { return conv(args, StepKind::window); }
  Status conv_chunk(const ConvArgs& args) override { return conv(args, StepKind::chunk); }

  Status export_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<float> out) const override {
    REPLAYSSM_TRY(
        ArgumentCheck({DType::f32, DType::bf16}, {}).transfer(shape, states, slot, out.size()));
    each_element(shape, states, slot, [&](std::size_t from, std::size_t to) {
      out[to] = states.type == DType::bf16 ? to_float(static_cast<const bf16*>(states.data)[from])
                                           : static_cast<const float*>(states.data)[from];
    });
    return {};
  }

  Status import_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<const float> in) const override {
    REPLAYSSM_TRY(
        ArgumentCheck({DType::f32, DType::bf16}, {}).transfer(shape, states, slot, in.size()));
    each_element(shape, states, slot, [&](std::size_t to, std::size_t from) {
      if (states.type == DType::bf16)
        static_cast<bf16*>(states.data)[to] = to_bf16(in[from]);
      else
        static_cast<float*>(states.data)[to] = in[from];
    });
    return {};
  }

 private:
  // Calls visit(index in the slot pool, index in [HV, V, K]) for every element of a slot.
  template <class Visit>
  static void each_element(const HeadShape& shape, const StateView& states, SlotId slot,
                           Visit&& visit) {
    std::size_t outside = 0;
    for (int head = 0; head < shape.value_heads; ++head) {
      for (int v = 0; v < kValueDim; ++v) {
        for (int k = 0; k < kKeyDim; ++k) {
          visit(slot.value * states.slot_stride + state_offset(head, v, k), outside++);
        }
      }
    }
  }

  bool is_null(const CursorView& cursors, const RowTokens& row) const {
    return cursors.base[row.row.value] == kNullSlot;
  }

  // One task is a key head of a row with all its value heads: it computes the products of keys and
  // queries once, and owns that ring. With fewer of those than threads, the value heads of a key
  // head are spread over several tasks; each reads the ring's keys, so these are appended when all
  // tasks are done.
  Status step(const StepArgs& args, StepKind kind) {
    REPLAYSSM_TRY(check_.step(args, kind));
    const std::size_t width = static_cast<std::size_t>(args.shape.value_heads) * kValueDim;
    for (const RowTokens& row : args.rows) {
      if (is_null(args.cursors, row)) {
        std::fill_n(args.out + row.first_token * width, row.tokens * width, 0.0f);
      }
    }
    const int key_heads = args.shape.key_heads;
    const int group = args.shape.group();
    const std::size_t owners = args.rows.size() * key_heads;
    if (owners == 0) return {};
    const auto wanted = (static_cast<std::size_t>(pool_.threads()) + owners - 1) / owners;
    const int parts = static_cast<int>(std::min<std::size_t>(wanted, group));
    const int heads = (group + parts - 1) / parts;  // value heads of a task
    const auto task_of = [&](std::size_t owner, int part, int thread) {
      StepTask task;
      task.args = &args;
      task.kind = kind;
      task.row = &args.rows[owner / key_heads];
      task.key_head = static_cast<int>(owner % key_heads);
      task.owns_keys = parts == 1 && kind != StepKind::packed;
      task.scratch = scratch_[thread].get();
      task.first_value_head = task.key_head * group + part * heads;
      task.value_heads = std::clamp(group - part * heads, 0, heads);
      return task;
    };
    if (parts == 1) {
      // A thread takes a run of owners, so that it knows what it will need next.
      const std::size_t threads = pool_.threads();
      const std::size_t runs = threads == 1 ? 1 : std::min(owners, kRunsPerThread * threads);
      const auto run = [&](std::size_t i, int thread) {
        const std::size_t end = (i + 1) * owners / runs;
        StepTask task = task_of(i * owners / runs, 0, thread);
        for (std::size_t owner = i * owners / runs; owner < end; ++owner) {
          const StepTask next = owner + 1 < end ? task_of(owner + 1, 0, thread) : StepTask{};
          task.next = owner + 1 < end && !is_null(args.cursors, *next.row) ? &next : nullptr;
          if (!is_null(args.cursors, *task.row)) step_value_heads(task);
          task = next;
        }
      };
      pool_.parallel_for(runs, std::ref(run));
      return {};
    }
    const auto work = [&](std::size_t i, int thread) {
      const StepTask task = task_of(i / parts, static_cast<int>(i % parts), thread);
      if (!is_null(args.cursors, *task.row)) step_value_heads(task);
    };
    pool_.parallel_for(owners * parts, std::ref(work));
    if (kind == StepKind::packed) return {};
    const auto append = [&](std::size_t i, int thread) {
      const StepTask task = task_of(i, 0, thread);
      if (!is_null(args.cursors, *task.row)) append_keys(task);
    };
    pool_.parallel_for(owners, std::ref(append));
    return {};
  }

  Status conv(const ConvArgs& args, StepKind kind) {
    REPLAYSSM_TRY(check_.conv(args, kind));
    const int channels = args.rings.channels;
    const int blocks = (channels + kConvChannels - 1) / kConvChannels;
    const auto work = [&](std::size_t i, int) {
      const RowTokens& row = args.rows[i / blocks];
      const int first = static_cast<int>(i % blocks) * kConvChannels;
      const int count = std::min(kConvChannels, channels - first);
      if (!is_null(args.cursors, row)) {
        convolve_channels({&args, &row, kind == StepKind::chunk, first, count});
        return;
      }
      for (int token = row.first_token; token < row.first_token + row.tokens; ++token) {
        std::fill_n(args.out + static_cast<std::size_t>(token) * channels + first, count, 0.0f);
      }
    };
    pool_.parallel_for(args.rows.size() * blocks, std::ref(work));
    return {};
  }

  ThreadPool& pool_;
  std::string name_;
  ArgumentCheck check_{{DType::f32, DType::bf16}, {DType::f32, DType::bf16}};
  std::vector<std::unique_ptr<StepScratch>> scratch_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<LinearOps> make_cpu_ops(ThreadPool& pool) {
  return std::make_unique<cpu::CpuOps>(pool);
}

}  // namespace replayssm
