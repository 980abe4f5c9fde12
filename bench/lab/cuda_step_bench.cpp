// Times the CUDA operations of one layer over whole ring cycles: CUDA graphs, buffers rotated
// beyond the L2 cache, random data, all phases weighted equally with rows staggered, medians.
//   cuda_step_bench [--json FILE] [--filter TEXT] [--variants]
// Floors are bytes (bench/byte_floor.h) over the copy ceiling of 4.18 TB/s that the project's
// tables use. Run cuda_step_check first: this program does not look at results.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "../byte_floor.h"
#include "cuda_device_image.h"

namespace replayssm::cuda::test {
namespace {

constexpr double kCopyCeiling = 4.18e12;

std::string json_rows;
std::string filter;

// Fills with copies of a random pattern of floats or bf16 in [low, high].
void fill(const DeviceBytes& to, bool bf16_numbers, float low, float high) {
  static std::mt19937 engine(7);
  std::uniform_real_distribution<float> draw(low, high);
  const std::size_t pattern = std::min<std::size_t>(to.bytes(), 8 << 20);
  std::vector<unsigned char> host(pattern);
  const std::size_t size = bf16_numbers ? 2 : 4;
  for (std::size_t i = 0; i + size <= pattern; i += size) {
    const float x = draw(engine);
    const bf16 b = to_bf16(x);
    std::memcpy(host.data() + i, bf16_numbers ? static_cast<const void*>(&b) : &x, size);
  }
  CUDA_MUST(cudaMemcpy(to.as<void>(), host.data(), pattern, cudaMemcpyHostToDevice));
  for (std::size_t done = pattern; done < to.bytes(); done *= 2) {
    CUDA_MUST(cudaMemcpy(to.as<char>() + done, to.as<void>(), std::min(done, to.bytes() - done),
                         cudaMemcpyDeviceToDevice));
  }
}

DeviceBytes ints(const std::vector<int>& v) {
  DeviceBytes d(v.size() * sizeof(int));
  CUDA_MUST(cudaMemcpy(d.as<void>(), v.data(), d.bytes(), cudaMemcpyHostToDevice));
  return d;
}

// Microseconds of one of `steps` launches in a graph; median of nine replays.
double time_us(cudaStream_t stream, int steps, const std::function<void(int)>& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CUDA_MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < steps; ++i) enqueue(i);
  CUDA_MUST(cudaStreamEndCapture(stream, &graph));
  CUDA_MUST(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CUDA_MUST(cudaEventCreate(&begin));
  CUDA_MUST(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 11; ++i) {
    CUDA_MUST(cudaEventRecord(begin, stream));
    CUDA_MUST(cudaGraphLaunch(exec, stream));
    CUDA_MUST(cudaEventRecord(end, stream));
    CUDA_MUST(cudaStreamSynchronize(stream));
    float ms = 0;
    CUDA_MUST(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 2) times.push_back(ms * 1000 / static_cast<float>(steps));
  }
  CUDA_MUST(cudaEventDestroy(begin));
  CUDA_MUST(cudaEventDestroy(end));
  CUDA_MUST(cudaGraphExecDestroy(exec));
  CUDA_MUST(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void report(const std::string& op, const HeadShape& heads, DType state, int batch, int block,
            const std::string& variant, const StepPlan& plan, double us, double bytes) {
  const double floor = bytes / kCopyCeiling * 1e6;
  std::printf(
      "%-7s %s %s B%-4d L%-3d %-22s rows%-4d g%d s%-2d %9.2f us %8.1f MB %6.2f TB/s floor %8.2f us "
      " %.3f\n",
      op.c_str(), heads.gate == GateKind::gdn ? "gdn" : "kda",
      state == DType::bf16 ? "bf16" : "fp32", batch, block, variant.c_str(), plan.unit_rows,
      plan.groups, plan.stages, us, bytes / 1e6, bytes / us / 1e6, floor, floor / us);
  std::fflush(stdout);
  json_rows += fmt::format(
      "{}  {{\"op\": \"{}\", \"gate\": \"{}\", \"value_heads\": {}, \"key_heads\": {}, \"state\": "
      "\"{}\", \"batch\": {}, \"fold_block\": {}, \"variant\": \"{}\", \"unit_rows\": {}, "
      "\"groups\": "
      "{}, \"stages\": {}, \"time_us\": {:.3f}, \"bytes\": {:.0f}, \"tb_per_s\": {:.3f}, "
      "\"floor_us\": {:.3f}, \"fraction_of_floor\": {:.4f}}}",
      json_rows.empty() ? "" : ",\n", op, heads.gate == GateKind::gdn ? "gdn" : "kda",
      heads.value_heads, heads.key_heads, name_of(state), batch, block, variant, plan.unit_rows,
      plan.groups, plan.stages, us, bytes, bytes / us / 1e6, floor, floor / us);
}

struct Variant {
  std::string name;
  PlanWishes wishes;
  bool settled = false;
};

void bench_steps(const HeadShape& heads, DType state, int batch, int block, cudaStream_t stream,
                 const DeviceLimits& limits, const std::vector<Variant>& variants) {
  const std::string key = fmt::format("{} {} B{}", heads.gate == GateKind::gdn ? "gdn" : "kda",
                                      state == DType::bf16 ? "bf16" : "fp32", batch);
  if (!filter.empty() && key.find(filter) == std::string::npos) return;
  const int ring = 2 * block;
  const std::size_t element = size_of(state), b = static_cast<std::size_t>(batch);
  const std::size_t hv = static_cast<std::size_t>(heads.value_heads);
  const std::size_t h = static_cast<std::size_t>(heads.key_heads);
  const std::size_t width = static_cast<std::size_t>(heads.gate_width());
  const std::size_t ring_rows = static_cast<std::size_t>(ring);
  const std::size_t state_bytes = b * heads.state_elements() * element;
  const std::size_t rotations = std::clamp<std::size_t>((400u << 20) / state_bytes, 2, 96);
  const DeviceBytes states(rotations * state_bytes);
  const DeviceBytes keys(rotations * b * h * ring_rows * 256);
  const DeviceBytes scales(rotations * b * h * ring_rows * 4);
  const DeviceBytes corrections(rotations * b * hv * ring_rows * 128 * element);
  const DeviceBytes gates(rotations * b * hv * ring_rows * width * 4);
  const std::size_t channels = static_cast<std::size_t>(heads.channels());
  const DeviceBytes qkv(b * channels * 2), gate(b * hv * width * 4), beta(b * hv * 4);
  const DeviceBytes out(b * hv * 128 * 2);
  const bool half = state == DType::bf16;
  fill(states, half, -0.05f, 0.05f);
  fill(keys, true, -1, 1);
  fill(scales, false, 0.14f, 0.16f);
  fill(corrections, half, -1, 1);
  fill(gates, false, -0.3f, -0.001f);
  fill(qkv, true, -1, 1);
  fill(gate, false, -0.3f, -0.001f);
  fill(beta, false, 0.1f, 0.9f);
  std::vector<int> identity(b), committed, checkpoint;
  for (std::size_t i = 0; i < b; ++i) identity[i] = static_cast<int>(i);
  for (int phase = 0; phase < block; ++phase) {
    for (int i = 0; i < batch; ++i) {
      checkpoint.push_back(block * (1 + i % 2));
      committed.push_back(checkpoint.back() + 1 + (i * 5 + phase) % block);
    }
  }
  const DeviceBytes d_row = ints(identity), d_committed = ints(committed),
                    d_checkpoint = ints(checkpoint), d_none = ints(std::vector<int>(b, -1));
  StepArgs args;
  args.batch = {d_row.as<int>(), nullptr, nullptr, d_row.as<int>(), d_row.as<int>(), batch};
  args.qkv = qkv.as<bf16>();
  args.token_stride = heads.channels();
  args.gate = gate.as<float>();
  args.beta = beta.as<float>();
  args.out = out.as<void>();
  args.key_heads = heads.key_heads;
  args.value_heads = heads.value_heads;
  args.ring_rows = ring;
  args.fold_block = block;
  args.query_scale = 0.08838835f;
  const int steps = static_cast<int>(rotations) * block;
  auto at_step = [&](int i) {
    const std::size_t r = static_cast<std::size_t>(i) % rotations;
    const std::size_t phase =
        static_cast<std::size_t>(i) / rotations % static_cast<std::size_t>(block);
    args.batch.committed = d_committed.as<int>() + phase * b;
    args.batch.checkpoint = d_checkpoint.as<int>() + phase * b;
    args.state = {states.as<char>() + r * state_bytes,
                  static_cast<std::int64_t>(heads.state_elements())};
    args.ring = {keys.as<bf16>() + r * b * h * ring_rows * 128,
                 scales.as<float>() + r * b * h * ring_rows,
                 corrections.as<char>() + r * b * hv * ring_rows * 128 * element,
                 gates.as<float>() + r * b * hv * ring_rows * width};
  };
  const StepGeometry geometry{heads, state, block, ring, batch};
  const bench::FloorShape floor{heads, state};
  for (const Variant& v : variants) {
    args.settled = v.settled ? 1 : 0;
    const auto packed = plan_packed_step(geometry, limits, v.wishes);
    if (packed.ok() && block == 16) {
      const double us = time_us(stream, steps, [&](int i) {
        at_step(i);
        must(launch_packed_step(*packed, args, stream));
      });
      report("packed", heads, state, batch, block, v.name, *packed, us,
             bench::packed_bytes(floor, batch));
    }
    const auto window = plan_window_step(geometry, limits, v.wishes);
    if (window.ok()) {
      const double us = time_us(stream, steps, [&](int i) {
        at_step(i);
        must(launch_window_step(*window, args, stream));
      });
      report("decode", heads, state, batch, block, v.name, *window, us,
             bench::decode_bytes(floor, batch, block));
      if (batch == 1) {  // what a launch costs before it does anything: one null row
        const double empty_us = time_us(stream, steps, [&](int i) {
          at_step(i);
          StepArgs nothing = args;
          nothing.batch.base = d_none.as<int>();
          must(launch_window_step(*window, nothing, stream));
        });
        report("null", heads, state, batch, block, v.name, *window, empty_us, 1);
      }
    }
  }
}

void bench_fold(const HeadShape& heads, DType state, int batch, int ring, int records, int layers,
                cudaStream_t stream, const DeviceLimits& limits,
                const std::vector<Variant>& variants) {
  if (!filter.empty() && std::string("fold").find(filter) == std::string::npos) return;
  const std::size_t element = size_of(state), b = static_cast<std::size_t>(batch);
  const std::size_t hv = static_cast<std::size_t>(heads.value_heads);
  const std::size_t h = static_cast<std::size_t>(heads.key_heads),
                    n = static_cast<std::size_t>(layers);
  const std::size_t ring_rows = static_cast<std::size_t>(ring);
  const std::size_t width = static_cast<std::size_t>(heads.gate_width());
  // A small batch is rotated over several sets.
  const std::size_t set_bytes = n * b * heads.state_elements() * element;
  const std::size_t sets = std::clamp<std::size_t>((400u << 20) / set_bytes, 1, 64);
  const DeviceBytes states(sets * set_bytes), keys(sets * n * b * h * ring_rows * 256),
      scales(sets * n * b * h * ring_rows * 4),
      corrections(sets * n * b * hv * ring_rows * 128 * element),
      gates(sets * n * b * hv * ring_rows * width * 4);
  const bool half = state == DType::bf16;
  fill(states, half, -0.05f, 0.05f);
  fill(keys, true, -1, 1);
  fill(scales, false, 0.14f, 0.16f);
  fill(corrections, half, -1, 1);
  fill(gates, false, -0.3f, -0.001f);
  std::vector<FoldLayer> table;
  for (std::size_t i = 0; i < sets * n; ++i) {
    table.push_back(
        {{states.as<char>() + i * b * heads.state_elements() * element,
          static_cast<std::int64_t>(heads.state_elements())},
         {keys.as<bf16>() + i * b * h * ring_rows * 128, scales.as<float>() + i * b * h * ring_rows,
          corrections.as<char>() + i * b * hv * ring_rows * 128 * element,
          gates.as<float>() + i * b * hv * ring_rows * width}});
  }
  DeviceBytes d_table(table.size() * sizeof(FoldLayer));
  CUDA_MUST(cudaMemcpy(d_table.as<void>(), table.data(), d_table.bytes(), cudaMemcpyHostToDevice));
  std::vector<int> identity(b);
  for (std::size_t i = 0; i < b; ++i) identity[i] = static_cast<int>(i);
  const DeviceBytes d_row = ints(identity), d_from = ints(std::vector<int>(b, ring)),
                    d_records = ints(std::vector<int>(b, records));
  FoldArgs args{d_table.as<FoldLayer>(),
                layers,
                batch,
                d_row.as<int>(),
                d_from.as<int>(),
                d_records.as<int>(),
                d_row.as<int>(),
                d_row.as<int>(),
                nullptr,
                heads.key_heads,
                heads.value_heads,
                ring};
  for (const Variant& v : variants) {
    const auto plan =
        plan_fold({heads, state, ring, std::max(records, 1), batch, layers}, limits, v.wishes);
    if (!plan.ok()) continue;
    const int steps = static_cast<int>(std::max<std::size_t>(sets, 2));
    const double us = time_us(stream, steps, [&](int i) {
      args.layers = d_table.as<FoldLayer>() + static_cast<std::size_t>(i) % sets * n;
      must(launch_fold(*plan, args, stream));
    });
    report(fmt::format("fold{}", records), heads, state, batch, ring, v.name, *plan, us,
           bench::fold_bytes({heads, state}, batch, layers, records));
  }
}

int run(const std::string& json, bool all_variants) {
  const DeviceLimits limits = must(device_limits());
  const Stream stream;
  {
    const std::size_t bytes = std::size_t{2} << 30;
    const DeviceBytes from(bytes), to(bytes);
    fill(from, false, -1, 1);
    // Outside a graph, where the driver picks its fastest copy.
    cudaEvent_t begin, end;
    CUDA_MUST(cudaEventCreate(&begin));
    CUDA_MUST(cudaEventCreate(&end));
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      CUDA_MUST(cudaEventRecord(begin, stream));
      CUDA_MUST(
          cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes, cudaMemcpyDeviceToDevice, stream));
      CUDA_MUST(cudaEventRecord(end, stream));
      CUDA_MUST(cudaStreamSynchronize(stream));
      float ms = 0;
      CUDA_MUST(cudaEventElapsedTime(&ms, begin, end));
      times.push_back(ms * 1000.0);
    }
    std::sort(times.begin(), times.end());
    const double us = times[4];
    std::printf("copy ceiling %.3f TB/s\n", 2 * static_cast<double>(bytes) / us / 1e6);
    json_rows = fmt::format("  {{\"op\": \"copy\", \"tb_per_s\": {:.3f}}}",
                            2 * static_cast<double>(bytes) / us / 1e6);
  }
  const std::vector<Variant> main_variants = {
      {"plain", {0, 0, 0, 0}}, {"overlap", {0, 0, 0, 1}}, {"settled", {0, 0, 0, 1}, true}};
  for (const HeadShape heads :
       {HeadShape{GateKind::gdn, 16, 48}, HeadShape{GateKind::kda, 32, 32}}) {
    for (const DType state : {DType::bf16, DType::f32}) {
      for (const int batch : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
        std::vector<Variant> variants = main_variants;
        if (all_variants) {
          const int full = state == DType::bf16 ? 128 : 64;
          for (const int rows : {full, full / 2}) {
            for (const int groups : {1, 2}) {
              for (const int stages : {1, 2, 3, 4, 6, 8}) {
                for (const char* name : {"plain", "overlap", "settled"}) {
                  const bool plain = std::string(name) == "plain";
                  variants.push_back({name,
                                      {rows, groups, stages, plain ? 0 : 1},
                                      std::string(name) == "settled"});
                }
              }
            }
          }
        }
        bench_steps(heads, state, batch, 16, stream, limits, variants);
      }
    }
  }
  for (const int block : {8, 32}) {
    for (const HeadShape heads :
         {HeadShape{GateKind::gdn, 16, 48}, HeadShape{GateKind::kda, 32, 32}}) {
      for (const DType state : {DType::bf16, DType::f32}) {
        bench_steps(heads, state, 128, block, stream, limits, main_variants);
      }
    }
  }
  const HeadShape big{GateKind::gdn, 16, 48};
  bench_fold(big, DType::bf16, 128, 16, 4, 48, stream, limits, main_variants);
  bench_fold(big, DType::bf16, 128, 16, 16, 48, stream, limits, main_variants);
  bench_fold(big, DType::bf16, 128, 32, 4, 48, stream, limits, main_variants);
  bench_fold(big, DType::bf16, 128, 64, 4, 48, stream, limits, main_variants);
  bench_fold(big, DType::bf16, 128, 128, 4, 48, stream, limits, main_variants);
  bench_fold(big, DType::bf16, 8, 16, 4, 48, stream, limits, main_variants);
  bench_fold({GateKind::gdn, 4, 12}, DType::bf16, 1, 16, 4, 48, stream, limits, main_variants);
  bench_fold(big, DType::f32, 64, 16, 16, 48, stream, limits, main_variants);
  bench_fold({GateKind::kda, 32, 32}, DType::bf16, 128, 16, 16, 20, stream, limits, main_variants);
  bench_fold({GateKind::kda, 32, 32}, DType::f32, 64, 16, 16, 20, stream, limits, main_variants);
  if (!json.empty()) std::ofstream(json) << "[\n" << json_rows << "\n]\n";
  return 0;
}

}  // namespace
}  // namespace replayssm::cuda::test

int main(int argc, char** argv) {
  std::string json;
  bool all_variants = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--variants") == 0) all_variants = true;
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) json = argv[++i];
    if (std::strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
      replayssm::cuda::test::filter = argv[++i];
    }
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: this machine has no GPU\n");
    return 77;
  }
  return replayssm::cuda::test::run(json, all_variants);
}
