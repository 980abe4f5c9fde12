#include "cuda_bench.h"

#include <algorithm>
#include <vector>

#include "bench_report.h"
#include "byte_floor.h"
#include "core/bfloat16.h"
#include "cuda_ceilings.h"
#include "cuda_conv_set.h"
#include "cuda_device_image.h"
#include "cuda_layer_set.h"
#include "cuda_step_expect.h"
#include "cuda_window_sequence.h"
#include "ops/cuda/cuda_check.h"
#include "stopwatch.h"

namespace replayssm::bench {
namespace {

namespace check = cuda::test;

Status check_options(const CudaBenchOptions& options) {
  const BenchOptions& o = options.op;
  REPLAYSSM_TRY(replayssm::check(o.heads));
  if (o.batch < 1 || o.batch > 4096) return refuse("--batch", o.batch, "1 to 4096");
  const int window_max = o.op == Op::verify                        ? std::min(o.fold_block, 16)
                         : o.op == Op::prefill || o.op == Op::conv ? 1 << 20
                                                                   : 1;
  if (o.window < 1 || o.window > window_max) {
    return refuse("--window", o.window, fmt::format("1 to {} in {}", window_max, name_of(o.op)));
  }
  if (o.op == Op::verify && !(o.accepted_per_step >= 1 && o.accepted_per_step <= o.window)) {
    return refuse("--accepted-per-step", o.accepted_per_step, fmt::format("1 to {}", o.window));
  }
  if (o.fold_block != 8 && o.fold_block != 16 && o.fold_block != 32) {
    return refuse("--fold-block", o.fold_block, "8, 16 or 32");
  }
  const int history_max = o.fold_block + (o.op == Op::verify ? o.window : 1) - 1;
  if (o.history && (*o.history < 0 || *o.history > history_max)) {
    return refuse("--history", *o.history, fmt::format("0 to {}, or cycle", history_max));
  }
  if (options.layers < 1) return refuse("--layers", options.layers, "at least 1");
  return {};
}

// Relative error of the outputs over ring phases from none to a whole block, the batch's other rows
// being neighbours at other phases; bf16 states are compared after the same roundings.
Result<double> check_decode(const BenchOptions& o, const cuda::DeviceLimits& limits,
                            const cuda::PlanWishes& wishes, bool settled, cudaStream_t stream) {
  check::ImageOptions image;
  image.heads = o.heads;
  image.state = o.state;
  image.fold_block = o.fold_block;
  image.ring_rows = 2 * o.fold_block;
  image.entries = std::min(o.batch, 3);
  image.settled = settled;
  double error = 0;
  for (int phase = 0; phase <= o.fold_block; phase += o.fold_block / 4) {
    image.seed = static_cast<std::uint64_t>(phase) + 1;
    const check::Image before = check::make_image(image, {3 * o.fold_block, o.fold_block},
                                                  {phase, (phase + 5) % (o.fold_block + 1)});
    const check::Worst window =
        check::compare_step(before, check::window_on_device(before, limits, stream, wishes), false);
    if (!window.fault.empty()) return Error{fmt::format("decode: {}", window.fault)};
    error = std::max(error, window.output);
  }
  const check::Image before = check::make_image(image, {7, 0, 40}, {0});
  const check::Worst packed =
      check::compare_step(before, check::packed_on_device(before, limits, stream, wishes), true);
  if (!packed.fault.empty()) return Error{fmt::format("packed step: {}", packed.fault)};
  return std::max(error, packed.output);
}

// Windows give the bits of the steps of one token that check_decode compares with float64.
Status check_windows(const BenchOptions& o, const cuda::DeviceLimits& limits,
                     const cuda::PlanWishes& wishes, const cuda::StepGeometry& geometry,
                     bool settled, cudaStream_t stream) {
  check::ImageOptions image;
  image.heads = {o.heads.gate, 1, o.heads.group()};
  image.state = o.state;
  image.fold_block = o.fold_block;
  image.ring_rows = geometry.ring_rows;
  image.entries = std::min(o.batch, 3);
  image.window = o.window;
  image.settled = settled;
  // As many units a block as in large batches.
  cuda::DeviceLimits crowded = limits;
  crowded.multiprocessors = 1;
  const std::string different = check::compare_windows_with_steps(
      image, 3 * o.fold_block, {o.fold_block}, {1, o.fold_block - 1, 3}, [&](check::Image& m) {
        m = check::window_on_device(m, image.entries < o.batch ? crowded : limits, stream, wishes);
      });
  if (!different.empty()) return Error{fmt::format("verify: {}", different)};
  return {};
}

// Chunks give the bits of steps of one token.
Status check_chunks(const BenchOptions& o, const cuda::DeviceLimits& limits, cudaStream_t stream) {
  check::ImageOptions image;
  image.heads = {o.heads.gate, 1, o.heads.group()};
  image.state = o.state;
  image.fold_block = o.fold_block;
  image.ring_rows = 2 * o.fold_block;
  image.entries = std::min(o.batch, 3);
  image.window = std::min(o.window, 4 * o.fold_block + 3);
  const check::Split split{
      true, [&](check::Image& m) { m = check::chunk_on_device(m, limits, stream, 1); },
      [&](check::Image& m) { m = check::window_on_device(m, limits, stream); }, image.ring_rows};
  const std::string different = check::compare_split_with_steps(
      image, 6 * o.fold_block, {o.fold_block, 0}, {1, o.fold_block, 0}, split);
  if (!different.empty()) return Error{fmt::format("prefill: {}", different)};
  return {};
}

// One layer's records into its checkpoints against float64.
Result<double> check_fold(const CudaBenchOptions& options, int ring_rows, int records,
                          const cuda::DeviceLimits& limits, cudaStream_t stream) {
  check::ImageOptions image;
  image.heads = options.op.heads;
  image.state = options.op.state;
  image.fold_block = options.op.fold_block;
  image.ring_rows = ring_rows;
  const check::Image before = check::make_image(image, {ring_rows}, {records});
  check::DeviceImage device(before, stream);
  const int row = before.row[0];
  const int slot = before.base[static_cast<std::size_t>(row)];
  const auto on_device = [](int value) { return DeviceBuffer::copy_of(&value, sizeof(int)); };
  const cuda::FoldLayer layer = device.layer();
  auto d_layer = DeviceBuffer::copy_of(&layer, sizeof(layer));
  auto d_row = on_device(row), d_from = on_device(ring_rows), d_records = on_device(records),
       d_slot = on_device(slot);
  for (const auto* buffer : {&d_layer, &d_row, &d_from, &d_records, &d_slot}) {
    if (!*buffer) return buffer->error();
  }
  cuda::FoldArgs args;
  args.layers = d_layer->as<cuda::FoldLayer>();
  args.layer_count = 1;
  args.entries = 1;
  args.row = d_row->as<int>();
  args.from = d_from->as<int>();
  args.records = d_records->as<int>();
  args.source = args.destination = d_slot->as<int>();
  args.key_heads = image.heads.key_heads;
  args.value_heads = image.heads.value_heads;
  args.ring_rows = ring_rows;
  const auto plan = cuda::plan_fold({image.heads, image.state, ring_rows, records, 1, 1}, limits);
  if (!plan) return plan.error();
  REPLAYSSM_TRY(cuda::launch_fold(*plan, args, stream));
  check::Image after = before;
  device.get(after);
  check::Worst worst;
  for (int head = 0; head < image.heads.value_heads; ++head) {
    check::HeadState want = check::load_state(before, slot, head);
    for (int p = ring_rows; p < ring_rows + records; ++p) {
      check::apply_record(before, row, head, p, want);
    }
    check::compare_state(after, slot, head, want, worst);
  }
  check::judge(worst, before);
  if (!worst.fault.empty()) return Error{fmt::format("fold: {}", worst.fault)};
  return worst.state;
}

CudaSetOptions set_options(const BenchOptions& o) {
  CudaSetOptions options;
  options.heads = o.heads;
  options.state = o.state;
  options.fold_block = o.fold_block;
  options.batch = o.batch;
  options.history = o.history;
  if (o.op == Op::verify) {
    options.window = o.window;
    options.accepted_per_step = o.accepted_per_step;
  }
  if (o.op == Op::prefill) {
    options.window = o.window;
    options.chunk = true;
    options.history = o.history.value_or(0);
    options.rotations_max = 8;
  }
  return options;
}

// No floor: a chunk is compared with its reference only.
Status time_chunks(const CudaBenchOptions& options, const cuda::DeviceLimits& limits,
                   cudaStream_t stream, BenchReport& report) {
  const BenchOptions& o = options.op;
  REPLAYSSM_TRY(check_chunks(o, limits, stream));
  const auto set = CudaStepSet::make(set_options(o));
  if (!set) return set.error();
  const auto plan = cuda::plan_chunk_prefill(set->geometry(), limits);
  if (!plan) return plan.error();
  const auto us = time_launches(stream, set->steps(), [&](int i) {
    return cuda::launch_chunk_prefill(*plan, set->at(i), stream);
  });
  if (!us) return us.error();
  report.time_us = *us;
  return {};
}

Status time_conv(const CudaBenchOptions& options, cudaStream_t stream, BenchReport& report) {
  const BenchOptions& o = options.op;
  const CudaConvOptions shape{o.heads.channels(), o.fold_block, o.batch, o.window,
                              options.order == LaunchOrder::settled};
  const auto error = check_conv(shape, stream);
  if (!error) return error.error();
  report.max_error = *error;
  const auto set = CudaConvSet::make(shape);
  if (!set) return set.error();
  const auto us = time_launches(stream, set->steps(),
                                [&](int i) { return cuda::launch_conv(set->at(i), stream); });
  if (!us) return us.error();
  report.time_us = *us;
  report.bytes = conv_bytes(o.heads, o.batch, o.window, set->conv_rows());
  return {};
}

Status time_windows(const CudaBenchOptions& options, const cuda::DeviceLimits& limits,
                    const cuda::PlanWishes& wishes, cudaStream_t stream, BenchReport& report) {
  const BenchOptions& o = options.op;
  const auto set = CudaStepSet::make(set_options(o));
  if (!set) return set.error();
  const bool settled = options.order == LaunchOrder::settled;
  REPLAYSSM_TRY(check_windows(o, limits, wishes, set->geometry(), settled, stream));
  const auto plan = cuda::plan_window_step(set->geometry(), limits, wishes);
  if (!plan) return plan.error();
  const auto us = time_launches(stream, set->steps(), [&](int i) {
    cuda::StepArgs args = set->at(i);
    args.settled = settled ? 1 : 0;
    return cuda::launch_window_step(*plan, args, stream);
  });
  if (!us) return us.error();
  report.time_us = *us;
  const double folded = !o.history                   ? o.accepted_per_step
                        : *o.history >= o.fold_block ? o.fold_block
                                                     : 0.0;
  report.bytes = verify_bytes({o.heads, o.state}, o.batch, o.fold_block, o.window,
                              set->mean_records(), folded);
  return {};
}

// Medians over o.passes turns of both steps, since a GPU's clocks wander.
Status time_decode(const CudaBenchOptions& options, const cuda::DeviceLimits& limits,
                   const cuda::PlanWishes& wishes, cudaStream_t stream, BenchReport& report) {
  const BenchOptions& o = options.op;
  const auto set = CudaStepSet::make(set_options(o));
  if (!set) return set.error();
  const auto args_at = [&](int i) {
    cuda::StepArgs args = set->at(i);
    args.settled = options.order == LaunchOrder::settled ? 1 : 0;
    return args;
  };
  const auto window = cuda::plan_window_step(set->geometry(), limits, wishes);
  if (!window) return window.error();
  const auto packed = cuda::plan_packed_step(set->geometry(), limits, wishes);
  if (!packed) return packed.error();
  std::vector<double> window_us, packed_us;
  for (int pass = 0; pass < std::max(o.passes, 1); ++pass) {
    const auto window_time = time_launches(stream, set->steps(), [&](int i) {
      return cuda::launch_window_step(*window, args_at(i), stream);
    });
    if (!window_time) return window_time.error();
    const auto packed_time = time_launches(stream, set->steps(), [&](int i) {
      return cuda::launch_packed_step(*packed, args_at(i), stream);
    });
    if (!packed_time) return packed_time.error();
    window_us.push_back(*window_time);
    packed_us.push_back(*packed_time);
  }
  const FloorShape floor{o.heads, o.state};
  report.time_us = median(window_us);
  report.packed_time_us = median(packed_us);
  report.bytes = o.history ? verify_bytes(floor, o.batch, o.fold_block, 1, *o.history,
                                          *o.history >= o.fold_block ? o.fold_block : 0)
                           : decode_bytes(floor, o.batch, o.fold_block);
  report.packed_fraction_of_update = packed_bytes(floor, o.batch) / *report.packed_time_us * 1e-3 /
                                     report.ceilings.update_gb_per_s;
  return {};
}

Status time_fold(const CudaBenchOptions& options, int ring_rows, int records,
                 const cuda::DeviceLimits& limits, const cuda::PlanWishes& wishes,
                 cudaStream_t stream, BenchReport& report) {
  const BenchOptions& o = options.op;
  const auto set =
      CudaFoldSet::make({o.heads, o.state, ring_rows, records, o.batch, options.layers});
  if (!set) return set.error();
  const auto plan = cuda::plan_fold(set->geometry(), limits, wishes);
  if (!plan) return plan.error();
  const auto us = time_launches(
      stream, set->steps(), [&](int i) { return cuda::launch_fold(*plan, set->at(i), stream); });
  if (!us) return us.error();
  report.time_us = *us;
  report.bytes = fold_bytes({o.heads, o.state}, o.batch, options.layers, records);
  return {};
}

}  // namespace

namespace {

Result<std::string> gpu_name() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    return Error{"--device cuda: this machine has no GPU; expected cpu"};
  }
  cudaDeviceProp properties{};
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGetDeviceProperties(&properties, 0)));
  return std::string(properties.name);
}

}  // namespace

Result<GpuFacts> measure_gpu() {
  const auto name = gpu_name();
  if (!name) return name.error();
  const auto stream = Stream::make();
  if (!stream) return stream.error();
  const auto ceilings = measure_cuda_ceilings(*stream);
  if (!ceilings) return ceilings.error();
  return GpuFacts{*name, *ceilings};
}

Result<CudaBenchReport> run_cuda_bench(const CudaBenchOptions& options) {
  const BenchOptions& o = options.op;
  REPLAYSSM_TRY(check_options(options));
  CudaBenchReport result;
  const auto name = gpu_name();
  if (!name) return name.error();
  result.gpu = *name;
  const auto limits = cuda::device_limits();
  if (!limits) return limits.error();
  const auto stream = Stream::make();
  if (!stream) return stream.error();
  const int ring_rows = options.ring_rows == 0 ? 2 * o.fold_block : options.ring_rows;
  const int records = o.records == 0 ? o.fold_block : o.records;
  cuda::PlanWishes wishes;
  wishes.overlap = options.order == LaunchOrder::plain ? 0 : 1;

  const bool settled = options.order == LaunchOrder::settled;
  if (o.op == Op::fold) {
    const auto error = check_fold(options, ring_rows, records, *limits, *stream);
    if (!error) return error.error();
    result.report.max_error = *error;
  } else if (o.op != Op::conv) {
    const auto error = check_decode(o, *limits, wishes, settled, *stream);
    if (!error) return error.error();
    result.report.max_error = *error;
  }
  const auto ceilings = measure_cuda_ceilings(*stream);
  if (!ceilings) return ceilings.error();
  result.report.ceilings = *ceilings;
  const auto time = [&]() -> Status {
    switch (o.op) {
      case Op::decode:
        return time_decode(options, *limits, wishes, *stream, result.report);
      case Op::verify:
        return time_windows(options, *limits, wishes, *stream, result.report);
      case Op::fold:
        return time_fold(options, ring_rows, records, *limits, wishes, *stream, result.report);
      case Op::prefill:
        return time_chunks(options, *limits, *stream, result.report);
      case Op::conv:
        return time_conv(options, *stream, result.report);
    }
    return {};
  };
  REPLAYSSM_TRY(time());
  result.report.floor_us = result.report.bytes / result.report.ceilings.copy_gb_per_s * 1e-3;
  return result;
}

}  // namespace replayssm::bench
