#include "ops/cuda/cuda_ops.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ops/check_arguments.h"
#include "ops/cuda/alignment.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/device_fold.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/tables.h"

namespace replayssm::cuda {
namespace {

// K^-1/2.
constexpr float kQueryScale = 0.08838834764831845f;

// What the kernels ask of states beyond what every backend does.
Status states_fit(const StateView& states) {
  REPLAYSSM_TRY(aligned("states.data", states.data));
  if (states.slot_stride % 8 != 0) {
    return refuse("states.slot_stride", states.slot_stride, "a multiple of 8");
  }
  return {};
}

Status rings_fit(const RingView& rings, DType state) {
  REPLAYSSM_TRY(aligned("rings.keys", rings.keys));
  REPLAYSSM_TRY(aligned("rings.corrections", rings.corrections));
  REPLAYSSM_TRY(aligned("rings.gates", rings.gates));
  if (rings.correction_type != state) {
    return refuse("rings.correction_type", name_of(rings.correction_type),
                  fmt::format("the states' type, {}", name_of(state)));
  }
  return {};
}

// The kernels for one token a row: entry e of a launch owns token e.
Status one_token_each(std::span<const RowTokens> rows) {
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e].tokens != 1) {
      return refuse("tokens", rows[e].tokens,
                    "1 (packed steps of several tokens a row are not built for cuda yet)");
    }
    if (rows[e].first_token != static_cast<int>(e)) {
      return refuse("first_token", rows[e].first_token,
                    fmt::format("{}, the row's place in the batch, on cuda", e));
    }
  }
  return {};
}

// Each operation has tables of its own: in a model the same ones come back in every layer, and are
// then not written again.
struct OperationTables {
  Tables packed_step, window_step, chunk_prefill, fold, advance, conv_window, conv_chunk;

  static Result<OperationTables> make() {
    OperationTables tables;
    for (Tables* each : {&tables.packed_step, &tables.window_step, &tables.chunk_prefill,
                         &tables.fold, &tables.advance, &tables.conv_window, &tables.conv_chunk}) {
      auto made = Tables::make();
      if (!made) return made.error();
      *each = *std::move(made);
    }
    return tables;
  }
  Tables& of_step(StepKind kind) {
    return kind == StepKind::chunk    ? chunk_prefill
           : kind == StepKind::packed ? packed_step
                                      : window_step;
  }
  Tables& of_conv(StepKind kind) { return kind == StepKind::chunk ? conv_chunk : conv_window; }
};

class CudaOps final : public LinearOps {
 public:
  CudaOps(cudaStream_t stream, const DeviceLimits& limits, std::string name, OperationTables tables)
      : stream_(stream), limits_(limits), name_(std::move(name)), tables_(std::move(tables)) {}

  std::string_view name() const override { return name_; }
  DType activation_type() const override { return DType::bf16; }
  GateForm gate_form() const override { return GateForm::decay; }

  Status gates(const replayssm::GateArgs& args) override {
    REPLAYSSM_TRY(check_.gates(args));
    return launch_gates({args.a, args.b, args.a_log, args.dt_bias, args.lower_bound, args.gate,
                         args.beta, args.tokens, args.shape.value_heads, args.shape.gate_width()},
                        stream_);
  }

  Status packed_step(const replayssm::StepArgs& args) override {
    return step(args, StepKind::packed);
  }
  Status window_step(const replayssm::StepArgs& args) override {
    return step(args, StepKind::window);
  }
  Status chunk_prefill(const replayssm::StepArgs& args) override {
    return step(args, StepKind::chunk);
  }

  Status fold(const replayssm::FoldArgs& args) override {
    REPLAYSSM_TRY(check_.fold(args));
    if (args.rows.empty() || args.states.empty()) return {};
    for (std::size_t layer = 0; layer < args.states.size(); ++layer) {
      REPLAYSSM_TRY(states_fit(args.states[layer]));
      REPLAYSSM_TRY(rings_fit(args.rings[layer], args.states[layer].type));
      if (args.states[layer].type != args.states[0].type) {
        return refuse("states.type", name_of(args.states[layer].type),
                      fmt::format("the first layer's, {}", name_of(args.states[0].type)));
      }
    }
    return fold_on_device(args, limits_, tables_.fold, stream_);
  }

  Status advance(const replayssm::AdvanceArgs& args) override {
    REPLAYSSM_TRY(check_.advance(args));
    if (args.rows.empty()) return {};
    std::vector<std::int32_t> row, chunk;
    for (const RowTokens& r : args.rows) {
      row.push_back(r.row.value);
      chunk.push_back(r.phase == Phase::prefill ? r.tokens : 0);
    }
    Tables::Words words;
    const std::size_t rows_at = words.add<std::int32_t>(row);
    const std::size_t accepted_at = words.add<const int>(args.accepted);
    const std::size_t chunks_at = words.add<std::int32_t>(chunk);
    const auto table = tables_.advance.write(words, stream_);
    if (!table) return table.error();
    const auto at = [&](std::size_t offset) {
      return reinterpret_cast<const int*>(*table + offset);
    };
    AdvanceArgs moved;
    moved.row = at(rows_at);
    moved.accepted = at(accepted_at);
    moved.chunk = at(chunks_at);
    moved.committed = &args.cursors.committed->tokens;
    moved.checkpoint = &args.cursors.checkpoint->tokens;
    moved.base = &args.cursors.base->value;
    moved.home = &args.cursors.home->value;
    moved.entries = static_cast<int>(args.rows.size());
    moved.fold_block = args.geometry.fold_block();
    moved.packed = args.recurrence == Recurrence::packed ? 1 : 0;
    return launch_advance(moved, stream_);
  }

  Status conv_window(const ConvArgs& args) override { return convolve(args, StepKind::window); }
  Status conv_chunk(const ConvArgs& args) override { return convolve(args, StepKind::chunk); }

  Status export_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<float> out) const override {
    REPLAYSSM_TRY(transfer_check().transfer(shape, states, slot, out.size()));
    if (states.type == DType::f32) return copy_slot(states, slot, out.data(), out.size_bytes());
    std::vector<bf16> slot_values(out.size());
    REPLAYSSM_TRY(copy_slot(states, slot, slot_values.data(), slot_values.size() * sizeof(bf16)));
    std::transform(slot_values.begin(), slot_values.end(), out.begin(),
                   [](bf16 x) { return to_float(x); });
    return {};
  }

  Status import_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<const float> in) const override {
    REPLAYSSM_TRY(transfer_check().transfer(shape, states, slot, in.size()));
    if (states.type == DType::f32) return fill_slot(states, slot, in.data(), in.size_bytes());
    std::vector<bf16> slot_values(in.size());
    std::transform(in.begin(), in.end(), slot_values.begin(), [](float x) { return to_bf16(x); });
    return fill_slot(states, slot, slot_values.data(), slot_values.size() * sizeof(bf16));
  }

 private:
  static ArgumentCheck transfer_check() { return ArgumentCheck({DType::f32, DType::bf16}, {}); }

  static char* slot_address(const StateView& states, SlotId slot) {
    return static_cast<char*>(states.data) +
           static_cast<std::size_t>(slot.value) * states.slot_stride * size_of(states.type);
  }
  Status copy_slot(const StateView& states, SlotId slot, void* to, std::size_t bytes) const {
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpyAsync(to, slot_address(states, slot), bytes, cudaMemcpyDeviceToHost, stream_)));
    return wait_for(stream_);
  }
  Status fill_slot(const StateView& states, SlotId slot, const void* from,
                   std::size_t bytes) const {
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpyAsync(slot_address(states, slot), from, bytes, cudaMemcpyHostToDevice, stream_)));
    return wait_for(stream_);
  }

  Status convolve(const ConvArgs& args, StepKind kind) {
    REPLAYSSM_TRY(check_.conv(args, kind));
    if (args.rows.empty()) return {};
    REPLAYSSM_TRY(conv_fits(args));
    const std::vector<ConvTask> tasks = conv_tasks(args.rows);
    Tables::Words words;
    words.add<ConvTask>(tasks);
    const auto table = tables_.of_conv(kind).write(words, stream_);
    if (!table) return table.error();
    return launch_conv(
        conv_launch(args, kind == StepKind::chunk, reinterpret_cast<const ConvTask*>(*table),
                    static_cast<int>(tasks.size())),
        stream_);
  }

  Status step(const replayssm::StepArgs& args, StepKind kind) {
    REPLAYSSM_TRY(check_.step(args, kind));
    if (args.rows.empty()) return {};
    const bool packed = kind == StepKind::packed;
    const bool several = kind == StepKind::chunk || (!packed && args.geometry.window_max() > 1);
    if (!several) REPLAYSSM_TRY(one_token_each(args.rows));
    REPLAYSSM_TRY(states_fit(args.states));
    REPLAYSSM_TRY(aligned("qkv_bf16", args.qkv_bf16));
    REPLAYSSM_TRY(aligned("gate", args.gate));
    if (!packed) REPLAYSSM_TRY(rings_fit(args.rings, args.states.type));
    const StepGeometry geometry{args.shape,
                                args.states.type,
                                args.geometry.fold_block(),
                                args.geometry.ring_rows(),
                                static_cast<int>(args.rows.size()),
                                packed ? 1 : args.geometry.window_max()};
    const auto plan = kind == StepKind::chunk ? plan_chunk_prefill(geometry, limits_)
                      : packed                ? plan_packed_step(geometry, limits_)
                                              : plan_window_step(geometry, limits_);
    if (!plan) return plan.error();
    std::vector<std::int32_t> row, first_token, tokens;
    for (const RowTokens& r : args.rows) {
      row.push_back(r.row.value);
      first_token.push_back(r.first_token);
      tokens.push_back(r.tokens);
    }
    Tables::Words words;
    const std::size_t rows_at = words.add<std::int32_t>(row);
    const std::size_t first_at = several ? words.add<std::int32_t>(first_token) : 0;
    const std::size_t tokens_at = several ? words.add<std::int32_t>(tokens) : 0;
    const auto table = tables_.of_step(kind).write(words, stream_);
    if (!table) return table.error();
    const auto at = [&](std::size_t offset) {
      return reinterpret_cast<const int*>(*table + offset);
    };

    StepArgs launch;
    launch.batch = {at(rows_at),
                    &args.cursors.committed->tokens,
                    &args.cursors.checkpoint->tokens,
                    &args.cursors.base->value,
                    &args.cursors.home->value,
                    geometry.entries,
                    several ? at(first_at) : nullptr,
                    several ? at(tokens_at) : nullptr};
    launch.state = {args.states.data, static_cast<std::int64_t>(args.states.slot_stride)};
    if (!packed) {
      launch.ring = {static_cast<bf16*>(args.rings.keys), args.rings.key_scales,
                     args.rings.corrections, args.rings.gates};
    }
    launch.qkv = args.qkv_bf16;
    launch.token_stride = args.shape.channels();
    launch.gate = args.gate;
    launch.beta = args.beta;
    launch.out = args.out;
    launch.out_f32 = 1;
    launch.key_heads = args.shape.key_heads;
    launch.value_heads = args.shape.value_heads;
    launch.ring_rows = geometry.ring_rows;
    launch.fold_block = geometry.fold_block;
    launch.query_scale = kQueryScale;
    return kind == StepKind::chunk ? launch_chunk_prefill(*plan, launch, stream_)
           : packed                ? launch_packed_step(*plan, launch, stream_)
                                   : launch_window_step(*plan, launch, stream_);
  }

  cudaStream_t stream_;
  DeviceLimits limits_;
  std::string name_;
  OperationTables tables_;
  ArgumentCheck check_{{DType::f32, DType::bf16},
                       {DType::f32, DType::bf16},
                       {DType::bf16},
                       DType::bf16,
                       CursorMemory::device};
};

}  // namespace

Result<std::unique_ptr<LinearOps>> make_cuda_ops(cudaStream_t stream) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    return Error{"cuda: this machine has no GPU; expected cpu"};
  }
  int device = 0, major = 0, minor = 0;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGetDevice(&device)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)));
  REPLAYSSM_TRY(kernels_fit_device());
  const auto limits = device_limits();
  if (!limits) return limits.error();
  auto tables = OperationTables::make();
  if (!tables) return tables.error();
  std::unique_ptr<LinearOps> ops = std::make_unique<CudaOps>(
      stream, *limits, fmt::format("cuda sm_{}{}", major, minor), *std::move(tables));
  return ops;
}

}  // namespace replayssm::cuda
