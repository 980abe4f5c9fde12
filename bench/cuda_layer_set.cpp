#include "cuda_layer_set.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/bfloat16.h"
#include "ops/cuda/cuda_check.h"
#include "replay/geometry.h"

namespace replayssm::bench {
Status make_random(DeviceBuffer& buffer, std::size_t count, DType type, float low, float high) {
  auto made = DeviceBuffer::make(count * size_of(type));
  if (!made) return made.error();
  buffer = std::move(*made);
  return fill_random(buffer, type, low, high);
}

Status make_integers(DeviceBuffer& buffer, const std::vector<int>& values) {
  auto made = DeviceBuffer::copy_of(values.data(), values.size() * sizeof(int));
  if (!made) return made.error();
  buffer = std::move(*made);
  return {};
}

Status fill_random(DeviceBuffer& buffer, DType type, float low, float high) {
  static std::mt19937 engine(7);
  std::uniform_real_distribution<float> draw(low, high);
  const std::size_t pattern = std::min<std::size_t>(buffer.bytes(), 8 << 20);
  const std::size_t size = size_of(type);
  std::vector<unsigned char> host(pattern);
  for (std::size_t i = 0; i + size <= pattern; i += size) {
    const float x = draw(engine);
    const bf16 rounded = to_bf16(x);
    std::memcpy(host.data() + i, type == DType::bf16 ? static_cast<const void*>(&rounded) : &x,
                size);
  }
  char* const data = buffer.as<char>();
  REPLAYSSM_TRY(
      REPLAYSSM_CUDA_STATUS(cudaMemcpy(data, host.data(), pattern, cudaMemcpyHostToDevice)));
  for (std::size_t done = pattern; done < buffer.bytes(); done *= 2) {
    const std::size_t bytes = std::min(done, buffer.bytes() - done);
    REPLAYSSM_TRY(
        REPLAYSSM_CUDA_STATUS(cudaMemcpy(data + done, data, bytes, cudaMemcpyDeviceToDevice)));
  }
  return {};
}

Result<double> time_launches(cudaStream_t stream, int launches,
                             const std::function<Status(int)>& launch) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  REPLAYSSM_TRY(
      REPLAYSSM_CUDA_STATUS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
  Status failure;
  for (int i = 0; i < launches && failure.ok(); ++i) failure = launch(i);
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamEndCapture(stream, &graph)));
  if (!failure.ok()) return failure.error();
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGraphInstantiate(&exec, graph, 0)));
  cudaEvent_t begin = nullptr, end = nullptr;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventCreate(&begin)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventCreate(&end)));
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventRecord(begin, stream)));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGraphLaunch(exec, stream)));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventRecord(end, stream)));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream)));
    float ms = 0;
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventElapsedTime(&ms, begin, end)));
    if (i >= 2) times.push_back(static_cast<double>(ms) * 1000 / launches);
  }
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventDestroy(begin)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventDestroy(end)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGraphExecDestroy(exec)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGraphDestroy(graph)));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Result<CudaStepSet> CudaStepSet::make(const CudaSetOptions& o) {
  CudaStepSet set;
  set.options_ = o;
  const auto batch = static_cast<std::size_t>(o.batch);
  const auto hv = static_cast<std::size_t>(o.heads.value_heads);
  const auto h = static_cast<std::size_t>(o.heads.key_heads);
  const auto width = static_cast<std::size_t>(o.heads.gate_width());
  const auto fold_geometry = FoldGeometry::make(o.fold_block, o.chunk ? 1 : o.window);
  if (!fold_geometry) return fold_geometry.error();
  set.ring_rows_ = fold_geometry->ring_rows();
  const auto ring = static_cast<std::size_t>(set.ring_rows_);
  const auto tokens = batch * static_cast<std::size_t>(o.window);
  const std::size_t state_bytes = batch * o.heads.state_elements() * size_of(o.state);
  const std::size_t rotations = std::clamp<std::size_t>(kBeyondCache / state_bytes, 2,
                                                        static_cast<std::size_t>(o.rotations_max));
  set.rotations_ = static_cast<int>(rotations);
  // A cycle of one token a step, or enough steps of windows for every phase to come up.
  set.phases_ = o.history || o.chunk ? 1 : o.window == 1 ? o.fold_block : 40;
  const std::size_t rows = rotations * batch;
  REPLAYSSM_TRY(make_random(set.states_, rows * o.heads.state_elements(), o.state, -0.05f, 0.05f));
  REPLAYSSM_TRY(make_random(set.keys_, rows * h * ring * kKeyDim, DType::bf16, -1, 1));
  REPLAYSSM_TRY(make_random(set.key_scales_, rows * h * ring, DType::f32, 0.14f, 0.16f));
  REPLAYSSM_TRY(make_random(set.corrections_, rows * hv * ring * kValueDim, o.state, -1, 1));
  REPLAYSSM_TRY(make_random(set.gates_, rows * hv * ring * width, DType::f32, 0.74f, 0.999f));
  const auto channels = static_cast<std::size_t>(o.heads.channels());
  REPLAYSSM_TRY(make_random(set.qkv_, tokens * channels, DType::bf16, -1, 1));
  REPLAYSSM_TRY(make_random(set.gate_, tokens * hv * width, DType::f32, -0.3f, -0.001f));
  REPLAYSSM_TRY(make_random(set.beta_, tokens * hv, DType::f32, 0.1f, 0.9f));
  REPLAYSSM_TRY(make_random(set.out_, tokens * hv * kValueDim, DType::bf16, 0, 0));
  std::vector<int> row, committed, checkpoint, pending, first_token;
  for (int i = 0; i < o.batch; ++i) {
    row.push_back(i);
    first_token.push_back(i * o.window);
    pending.push_back(o.history ? *o.history : 1 + i * 5 % o.fold_block);
  }
  for (int phase = 0; phase < set.phases_; ++phase) {
    for (int i = 0; i < o.batch; ++i) {
      int& p = pending[static_cast<std::size_t>(i)];
      checkpoint.push_back(o.fold_block * (1 + i % 2));
      committed.push_back(checkpoint.back() + p);
      set.mean_records_ += static_cast<double>(p) / (set.phases_ * o.batch);
      // Whole numbers whose mean over time is accepted_per_step.
      const auto accepted_before = [&](int step) {
        return static_cast<int>((step + i) * o.accepted_per_step + 1e-9);
      };
      if (p >= o.fold_block) p -= o.fold_block;
      p += accepted_before(phase + 1) - accepted_before(phase);
    }
  }
  REPLAYSSM_TRY(make_integers(set.row_, row));
  REPLAYSSM_TRY(make_integers(set.committed_, committed));
  REPLAYSSM_TRY(make_integers(set.checkpoint_, checkpoint));
  REPLAYSSM_TRY(make_integers(set.first_token_, first_token));
  REPLAYSSM_TRY(make_integers(set.tokens_, std::vector<int>(batch, o.window)));
  return set;
}

cuda::StepGeometry CudaStepSet::geometry() const {
  return {options_.heads, options_.state, options_.fold_block,
          ring_rows_,     options_.batch, options_.chunk ? 1 : options_.window};
}

cuda::StepArgs CudaStepSet::at(int step) const {
  const CudaSetOptions& o = options_;
  const auto rotation = static_cast<std::size_t>(step % rotations_);
  const auto phase = static_cast<std::size_t>(step / rotations_ % phases_);
  const auto batch = static_cast<std::size_t>(o.batch);
  const auto ring = static_cast<std::size_t>(ring_rows_);
  const std::size_t key_rows =
      rotation * batch * static_cast<std::size_t>(o.heads.key_heads) * ring;
  const std::size_t value_rows =
      rotation * batch * static_cast<std::size_t>(o.heads.value_heads) * ring;
  cuda::StepArgs args;
  args.batch = {row_.as<int>(),
                committed_.as<int>() + phase * batch,
                checkpoint_.as<int>() + phase * batch,
                row_.as<int>(),
                row_.as<int>(),
                o.batch,
                first_token_.as<int>(),
                tokens_.as<int>()};
  args.state = {states_.as<char>() + rotation * batch * o.heads.state_elements() * size_of(o.state),
                static_cast<std::int64_t>(o.heads.state_elements())};
  args.ring = {keys_.as<bf16>() + key_rows * kKeyDim, key_scales_.as<float>() + key_rows,
               corrections_.as<char>() + value_rows * kValueDim * size_of(o.state),
               gates_.as<float>() + value_rows * static_cast<std::size_t>(o.heads.gate_width())};
  args.qkv = qkv_.as<bf16>();
  args.token_stride = o.heads.channels();
  args.gate = gate_.as<float>();
  args.beta = beta_.as<float>();
  args.out = out_.as<void>();
  args.key_heads = o.heads.key_heads;
  args.value_heads = o.heads.value_heads;
  args.ring_rows = ring_rows_;
  args.fold_block = o.fold_block;
  args.query_scale = 0.08838835f;
  return args;
}

Result<CudaFoldSet> CudaFoldSet::make(const CudaFoldOptions& o) {
  CudaFoldSet set;
  set.options_ = o;
  const auto batch = static_cast<std::size_t>(o.batch);
  const auto hv = static_cast<std::size_t>(o.heads.value_heads);
  const auto h = static_cast<std::size_t>(o.heads.key_heads);
  const auto layers = static_cast<std::size_t>(o.layers);
  const auto width = static_cast<std::size_t>(o.heads.gate_width());
  const auto ring = static_cast<std::size_t>(o.ring_rows);
  const std::size_t set_bytes = layers * batch * o.heads.state_elements() * size_of(o.state);
  const std::size_t sets = std::clamp<std::size_t>(kBeyondCache / set_bytes, 1, 64);
  set.sets_ = static_cast<int>(sets);
  const std::size_t rows = sets * layers * batch;
  REPLAYSSM_TRY(make_random(set.states_, rows * o.heads.state_elements(), o.state, -0.05f, 0.05f));
  REPLAYSSM_TRY(make_random(set.keys_, rows * h * ring * kKeyDim, DType::bf16, -1, 1));
  REPLAYSSM_TRY(make_random(set.key_scales_, rows * h * ring, DType::f32, 0.14f, 0.16f));
  REPLAYSSM_TRY(make_random(set.corrections_, rows * hv * ring * kValueDim, o.state, -1, 1));
  REPLAYSSM_TRY(make_random(set.gates_, rows * hv * ring * width, DType::f32, 0.74f, 0.999f));
  std::vector<cuda::FoldLayer> table;
  for (std::size_t i = 0; i < sets * layers; ++i) {
    table.push_back(
        {{set.states_.as<char>() + i * batch * o.heads.state_elements() * size_of(o.state),
          static_cast<std::int64_t>(o.heads.state_elements())},
         {set.keys_.as<bf16>() + i * batch * h * ring * kKeyDim,
          set.key_scales_.as<float>() + i * batch * h * ring,
          set.corrections_.as<char>() + i * batch * hv * ring * kValueDim * size_of(o.state),
          set.gates_.as<float>() + i * batch * hv * ring * width}});
  }
  auto device_table = DeviceBuffer::copy_of(table.data(), table.size() * sizeof(cuda::FoldLayer));
  if (!device_table) return device_table.error();
  set.table_ = std::move(*device_table);
  std::vector<int> row;
  for (int i = 0; i < o.batch; ++i) row.push_back(i);
  REPLAYSSM_TRY(make_integers(set.row_, row));
  REPLAYSSM_TRY(make_integers(set.from_, std::vector<int>(batch, o.ring_rows)));
  REPLAYSSM_TRY(make_integers(set.records_, std::vector<int>(batch, o.records)));
  return set;
}

cuda::FoldGeometryOnDevice CudaFoldSet::geometry() const {
  return {options_.heads,   options_.state, options_.ring_rows,
          options_.records, options_.batch, options_.layers};
}

cuda::FoldArgs CudaFoldSet::at(int step) const {
  cuda::FoldArgs args;
  args.layers = table_.as<cuda::FoldLayer>() +
                static_cast<std::size_t>(step % sets_) * static_cast<std::size_t>(options_.layers);
  args.layer_count = options_.layers;
  args.entries = options_.batch;
  args.row = row_.as<int>();
  args.from = from_.as<int>();
  args.records = records_.as<int>();
  args.source = row_.as<int>();
  args.destination = row_.as<int>();
  args.key_heads = options_.heads.key_heads;
  args.value_heads = options_.heads.value_heads;
  args.ring_rows = options_.ring_rows;
  return args;
}

}  // namespace replayssm::bench
