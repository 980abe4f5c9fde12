// Times the retired versions of window_step beside the one in use, after comparing their outputs
// bit for bit: us per layer and fraction of the floor, every ring phase weighted equally.
//   cuda_lab_bench [--json FILE]
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "byte_floor.h"
#include "cuda_layer_set.h"
#include "ops/cuda/cuda_check.h"
#include "retired_kernels.h"

namespace replayssm::bench {
namespace {

constexpr double kCopyCeiling = 4.18e12;  // bytes/s, of the project's tables
constexpr int kFoldBlock = 16;

using Launch = Status (*)(const cuda::StepPlan&, const cuda::StepArgs&, cudaStream_t);

struct Version {
  const char* name;
  Launch launch;
  cuda::PlanWishes wishes;
  bool settled;
};

// Version 3: one block of two groups and four stages a multiprocessor; what it lacks is given by
// its wishes and by launches that wait for the one before.
const Version kVersions[] = {
    {"in use", cuda::launch_window_step, {}, true},
    {"in use, not settled", cuda::launch_window_step, {}, false},
    {"version 3's plan", cuda::launch_window_step, {0, 2, 4, 1, 1}, false},
    {"many copies", cuda::lab::launch_many_copies, {0, 2, 4, 1, 1}, false},
    {"unpipelined", cuda::lab::launch_unpipelined, {}, false},
};

// The outputs of one launch.
Result<std::vector<unsigned char>> outputs(const Version& version, const CudaStepSet& set,
                                           const cuda::DeviceLimits& limits, cudaStream_t stream) {
  const auto plan = cuda::plan_window_step(set.geometry(), limits, version.wishes);
  if (!plan) return plan.error();
  const cuda::StepArgs args = set.at(0);
  REPLAYSSM_TRY(version.launch(*plan, args, stream));
  std::vector<unsigned char> out(static_cast<std::size_t>(args.batch.entries * args.value_heads) *
                                 kValueDim * sizeof(bf16));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaMemcpyAsync(out.data(), args.out, out.size(), cudaMemcpyDeviceToHost, stream)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream)));
  return out;
}

Status run(const HeadShape& heads, DType state, const cuda::DeviceLimits& limits,
           std::string& json) {
  const auto stream = Stream::make();
  if (!stream) return stream.error();
  const std::string format = fmt::format("{} {}", heads.gate == GateKind::gdn ? "gdn" : "kda",
                                         state == DType::bf16 ? "bf16" : "fp32");
  // Eight records: nothing folds, so the step can be repeated.
  const auto still = CudaStepSet::make({heads, state, kFoldBlock, 3, 8});
  if (!still) return still.error();
  const auto want = outputs(kVersions[0], *still, limits, *stream);
  if (!want) return want.error();
  for (const Version& version : kVersions) {
    const auto got = outputs(version, *still, limits, *stream);
    if (!got) return got.error();
    if (*got != *want) return Error{fmt::format("{} {}: other outputs", format, version.name)};
  }
  for (const int batch : {1, 16, 64, 128, 256}) {
    const auto set = CudaStepSet::make({heads, state, kFoldBlock, batch, std::nullopt});
    if (!set) return set.error();
    const double bytes = decode_bytes({heads, state}, batch, kFoldBlock);
    for (const Version& version : kVersions) {
      const auto plan = cuda::plan_window_step(set->geometry(), limits, version.wishes);
      if (!plan) continue;  // four stages do not fit everywhere
      const auto us = time_launches(*stream, set->steps(), [&](int i) {
        cuda::StepArgs args = set->at(i);
        args.settled = version.settled ? 1 : 0;
        return version.launch(*plan, args, *stream);
      });
      if (!us) return us.error();
      const double fraction = bytes / kCopyCeiling * 1e6 / *us;
      std::printf("%s B%-3d %-20s %8.2f us %.3f\n", format.c_str(), batch, version.name, *us,
                  fraction);
      json += fmt::format(
          "{}  {{\"case\": \"{}\", \"batch\": {}, \"version\": \"{}\", \"time_us\": {:.2f}, "
          "\"fraction_of_floor\": {:.4f}}}",
          json.empty() ? "" : ",\n", format, batch, version.name, *us, fraction);
    }
  }
  return {};
}

int run_all(const std::string& path) {
  const auto limits = cuda::device_limits();
  Status status = limits.ok() ? Status() : Status(limits.error());
  std::string json;
  for (const HeadShape heads : {HeadShape{GateKind::gdn, 16, 48}, {GateKind::kda, 32, 32}}) {
    for (const DType state : {DType::bf16, DType::f32}) {
      if (status.ok()) status = run(heads, state, *limits, json);
    }
  }
  if (!path.empty()) std::ofstream(path) << "[\n" << json << "\n]\n";
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 2;
}

}  // namespace
}  // namespace replayssm::bench

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: this machine has no GPU\n");
    return 77;
  }
  return replayssm::bench::run_all(argc == 3 && std::strcmp(argv[1], "--json") == 0 ? argv[2] : "");
}
