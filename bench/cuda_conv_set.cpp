#include "cuda_conv_set.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::bench {
namespace {

constexpr int kDepth = 40;  // of every row, and of its checkpoint

std::vector<RowTokens> rows_of(const CudaConvOptions& o) {
  std::vector<RowTokens> rows;
  for (int i = 0; i < o.batch; ++i) {
    rows.push_back(
        {RowIndex{i}, i * o.tokens, o.tokens, o.chunk() ? Phase::prefill : Phase::verify});
  }
  return rows;
}

}  // namespace

Result<CudaConvSet> CudaConvSet::make(const CudaConvOptions& o) {
  const auto geometry = o.geometry();
  if (!geometry) return geometry.error();
  CudaConvSet set;
  set.options_ = o;
  set.geometry_ = *geometry;
  const auto batch = static_cast<std::size_t>(o.batch);
  const auto channels = static_cast<std::size_t>(o.channels);
  const std::size_t inputs = batch * static_cast<std::size_t>(o.tokens) * channels;
  const std::size_t ring = batch * static_cast<std::size_t>(geometry->conv_rows()) * channels;
  // What a launch touches of a ring: three inputs before the row's, and those that it moves there.
  const auto touched = static_cast<std::size_t>(std::min(geometry->conv_rows(), 3 + o.tokens));
  set.rotations_ = static_cast<int>(std::clamp<std::size_t>(
      kBeyondCache / ((batch * touched * channels + 2 * inputs) * sizeof(bf16)), 2, 64));
  const auto rotations = static_cast<std::size_t>(set.rotations_);
  REPLAYSSM_TRY(make_random(set.rings_, rotations * ring, DType::bf16, -1, 1));
  REPLAYSSM_TRY(make_random(set.weight_, channels * kConvWidth, DType::f32, -1, 1));
  REPLAYSSM_TRY(make_random(set.input_, rotations * inputs, DType::bf16, -1, 1));
  REPLAYSSM_TRY(make_random(set.out_, rotations * inputs, DType::bf16, 0, 0));
  REPLAYSSM_TRY(make_integers(set.cursor_, std::vector<int>(batch, kDepth)));
  REPLAYSSM_TRY(make_integers(set.row_, std::vector<int>(batch, 0)));
  const std::vector<cuda::ConvTask> tasks = cuda::conv_tasks(rows_of(o));
  auto table = DeviceBuffer::copy_of(tasks.data(), tasks.size() * sizeof(cuda::ConvTask));
  if (!table) return table.error();
  set.tasks_ = std::move(*table);
  set.task_count_ = static_cast<int>(tasks.size());
  return set;
}

cuda::ConvLaunch CudaConvSet::at(int step) const {
  const auto rotation = static_cast<std::size_t>(step % rotations_);
  const auto channels = static_cast<std::size_t>(options_.channels);
  const auto rows = static_cast<std::size_t>(options_.batch);
  const std::size_t inputs = rotation * rows * static_cast<std::size_t>(options_.tokens) * channels;
  cuda::ConvLaunch launch;
  launch.tasks = tasks_.as<cuda::ConvTask>();
  launch.task_count = task_count_;
  launch.committed = launch.checkpoint = cursor_.as<int>();
  launch.base = launch.home = row_.as<int>();
  launch.ring =
      rings_.as<bf16>() + rotation * rows * static_cast<std::size_t>(conv_rows()) * channels;
  launch.weight = weight_.as<float>();
  launch.input = input_.as<bf16>() + inputs;
  launch.out = out_.as<bf16>() + inputs;
  launch.input_stride = options_.channels;
  launch.channels = options_.channels;
  launch.conv_rows = conv_rows();
  launch.fold_block = options_.fold_block;
  launch.packed = 1;
  launch.chunk = options_.chunk() ? 1 : 0;
  launch.one_token = options_.tokens == 1 ? 1 : 0;
  launch.settled = options_.settled ? 1 : 0;
  return launch;
}

Result<double> check_conv(const CudaConvOptions& options, cudaStream_t stream) {
  constexpr int kTokensMax = 2048;  // in float64 on one core, a second or two
  CudaConvOptions o = options;
  o.batch = std::min(o.batch, kTokensMax / (FoldGeometry::kLargestWindow + 1));
  if (o.chunk()) {
    o.tokens = std::clamp(kTokensMax / o.batch, FoldGeometry::kLargestWindow + 1, o.tokens);
  }
  const auto geometry = o.geometry();
  if (!geometry) return geometry.error();
  const auto channels = static_cast<std::size_t>(o.channels);
  const auto rows = static_cast<std::size_t>(o.batch);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<bf16> ring(rows * static_cast<std::size_t>(geometry->conv_rows()) * channels),
      input(rows * static_cast<std::size_t>(o.tokens) * channels);
  std::vector<float> weight(channels * kConvWidth), x, out(input.size()), expected(input.size());
  std::vector<bf16> rounded(input.size()), moved(ring.size());
  for (bf16& each : ring) each = to_bf16(normal(random));
  for (bf16& each : input) each = to_bf16(normal(random));
  for (float& each : weight) each = normal(random);
  for (bf16 each : input) x.push_back(to_float(each));
  std::vector<Depth> cursor(rows, Depth{kDepth});
  std::vector<SlotId> slot(rows, SlotId{0});
  const std::vector<RowTokens> tokens = rows_of(o);
  const std::vector<cuda::ConvTask> tasks = cuda::conv_tasks(tokens);
  const auto on_device = [](const auto& v) {
    return DeviceBuffer::copy_of(v.data(), v.size() * sizeof(v[0]));
  };
  const auto d_ring = on_device(ring), d_input = on_device(input), d_weight = on_device(weight),
             d_out = on_device(out), d_rounded = on_device(rounded), d_cursor = on_device(cursor),
             d_slot = on_device(slot), d_tasks = on_device(tasks);
  for (const auto* buffer :
       {&d_ring, &d_input, &d_weight, &d_out, &d_rounded, &d_cursor, &d_slot, &d_tasks}) {
    if (!*buffer) return buffer->error();
  }
  ConvArgs args;
  args.geometry = *geometry;
  args.recurrence = Recurrence::packed;
  args.rows = tokens;
  args.rings = {d_ring->as<void>(), DType::bf16, o.batch, geometry->conv_rows(), o.channels};
  args.cursors = {d_cursor->as<Depth>(), d_cursor->as<Depth>(), d_slot->as<SlotId>(),
                  d_slot->as<SlotId>(), o.batch};
  args.weight = d_weight->as<float>();
  args.input_bf16 = d_input->as<bf16>();
  args.out = d_out->as<float>();
  REPLAYSSM_TRY(cuda::conv_fits(args));
  cuda::ConvLaunch launch = cuda::conv_launch(args, o.chunk(), d_tasks->as<cuda::ConvTask>(),
                                              static_cast<int>(tasks.size()));
  launch.settled = o.settled ? 1 : 0;
  const auto get = [](auto& to, const DeviceBuffer& from) {
    return REPLAYSSM_CUDA_STATUS(
        cudaMemcpy(to.data(), from.as<void>(), to.size() * sizeof(to[0]), cudaMemcpyDeviceToHost));
  };
  REPLAYSSM_TRY(cuda::launch_conv(launch, stream));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream)));
  REPLAYSSM_TRY(get(out, *d_out));
  REPLAYSSM_TRY(get(moved, *d_ring));
  // Again as it is timed, from the rings as they were.
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpy(
      d_ring->as<void>(), ring.data(), ring.size() * sizeof(bf16), cudaMemcpyHostToDevice)));
  launch.out = d_rounded->as<void>();
  launch.out_f32 = 0;
  REPLAYSSM_TRY(cuda::launch_conv(launch, stream));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream)));
  REPLAYSSM_TRY(get(rounded, *d_rounded));
  args.rings.inputs = ring.data();
  args.cursors = {cursor.data(), cursor.data(), slot.data(), slot.data(), o.batch};
  args.weight = weight.data();
  args.input_bf16 = nullptr;
  args.input = x.data();
  args.out = expected.data();
  const auto reference = make_reference_ops();
  REPLAYSSM_TRY(o.chunk() ? reference->conv_chunk(args) : reference->conv_window(args));
  double worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double error = std::abs(out[i] - expected[i]) / (1 + std::abs(expected[i]));
    worst = std::isnan(error) ? error : std::max(worst, error);
    if (std::isnan(worst)) break;
    if (rounded[i].bits != to_bf16(out[i]).bits) {
      return Error{fmt::format("conv: output {} is {} in bf16 and {} in fp32", i,
                               to_float(rounded[i]), out[i])};
    }
  }
  if (!(worst <= 2e-6)) return Error{fmt::format("conv: error {} against float64", worst)};
  for (std::size_t i = 0; i < ring.size(); ++i) {
    if (moved[i].bits != ring[i].bits)
      return Error{fmt::format("conv: ring element {} differs", i)};
  }
  return worst;
}

}  // namespace replayssm::bench
