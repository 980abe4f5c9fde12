// Times the CUDA decode step under every plan, for choosing plans: units, groups, stages, and how a
// launch meets the one before it. `replayssm bench --device cuda` times the plans' own choice and
// checks results; this program does not look at results.
//   cuda_step_bench [--json FILE] [--filter TEXT] [--window T]
// TEXT: such as "gdn bf16 B1 " or "kda". With a window above 1: windows of so many tokens, 45 % of
// them accepted.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "byte_floor.h"
#include "cuda_layer_set.h"

namespace replayssm::bench {
namespace {

constexpr double kCopyCeiling = 4.18e12;  // bytes/s, of the project's tables

struct Variant {
  std::string name;
  cuda::PlanWishes wishes;
  bool settled = false;
};

// Half units lose by a wide margin from 8 rows on and are left out there.
std::vector<Variant> variants_for(DType state, int batch) {
  std::vector<Variant> variants = {{"own plain", {0, 0, 0, 0}, false},
                                   {"own overlap", {0, 0, 0, 1}, false},
                                   {"own settled", {0, 0, 0, 1}, true}};
  const int full = state == DType::bf16 ? 128 : 64;
  for (const int rows : {full, full / 2}) {
    if (rows != full && batch >= 8) continue;
    for (const int groups : {1, 2, 3}) {
      for (const int stages : {1, 2, 3, 4, 5, 6, 8}) {
        variants.push_back({"settled", {rows, groups, stages, 1}, true});
      }
    }
    for (const int stages : {1, 2, 3}) {
      variants.push_back({"settled x2", {rows, 1, stages, 1, 2}, true});
    }
  }
  return variants;
}

class Sweep {
 public:
  Sweep(const cuda::DeviceLimits& limits, std::string filter, int window)
      : limits_(limits), filter_(std::move(filter)), window_(window) {}

  Status run(const HeadShape& heads, DType state, int batch, int block) {
    const std::string name =
        fmt::format("{} {} B{} L{}", heads.gate == GateKind::gdn ? "gdn" : "kda",
                    state == DType::bf16 ? "bf16" : "fp32", batch, block);
    if (name.find(filter_) == std::string::npos) return {};
    const auto stream = Stream::make();
    if (!stream) return stream.error();
    const double accepted = window_ == 1 ? 1 : 0.45 * window_;
    const auto set =
        CudaStepSet::make({heads, state, block, batch, std::nullopt, 32, window_, accepted});
    if (!set) return set.error();
    const FloorShape floor{heads, state};
    for (const Variant& variant : variants_for(state, batch)) {
      const auto args_at = [&](int i) {
        cuda::StepArgs args = set->at(i);
        args.settled = variant.settled ? 1 : 0;
        return args;
      };
      const auto window = cuda::plan_window_step(set->geometry(), limits_, variant.wishes);
      if (window.ok()) {
        const auto us = time_launches(*stream, set->steps(), [&](int i) {
          return cuda::launch_window_step(*window, args_at(i), *stream);
        });
        if (!us) return us.error();
        if (window_ == 1) {
          report("decode", name, variant.name, *window, *us, decode_bytes(floor, batch, block));
        } else {
          report("windows", name, variant.name, *window, *us,
                 verify_bytes(floor, batch, block, window_, set->mean_records(), accepted));
        }
      }
      if (window_ > 1) continue;
      const auto packed = cuda::plan_packed_step(set->geometry(), limits_, variant.wishes);
      if (packed.ok()) {
        const auto us = time_launches(*stream, set->steps(), [&](int i) {
          return cuda::launch_packed_step(*packed, args_at(i), *stream);
        });
        if (!us) return us.error();
        report("packed", name, variant.name, *packed, *us, packed_bytes(floor, batch));
      }
    }
    return {};
  }

  const std::string& json() const { return json_; }

 private:
  void report(const char* op, const std::string& name, const std::string& variant,
              const cuda::StepPlan& plan, double us, double bytes) {
    const double fraction = bytes / kCopyCeiling * 1e6 / us;
    std::printf("%s %s %-12s rows %-3d groups %d stages %d %9.2f us %.3f\n", op, name.c_str(),
                variant.c_str(), plan.unit_rows, plan.groups, plan.stages, us, fraction);
    std::fflush(stdout);
    json_ += fmt::format(
        "{}  {{\"op\": \"{}\", \"case\": \"{}\", \"variant\": \"{}\", \"unit_rows\": {}, "
        "\"groups\": {}, \"stages\": {}, \"time_us\": {:.3f}, \"fraction_of_floor\": {:.4f}}}",
        json_.empty() ? "" : ",\n", op, name, variant, plan.unit_rows, plan.groups, plan.stages, us,
        fraction);
  }

  cuda::DeviceLimits limits_;
  std::string filter_;
  int window_;
  std::string json_;
};

int run(const std::string& json, const std::string& filter, int window) {
  const auto limits = cuda::device_limits();
  if (!limits) {
    std::fprintf(stderr, "%s\n", limits.error().message.c_str());
    return 2;
  }
  Sweep sweep(*limits, filter, window);
  for (const HeadShape heads :
       {HeadShape{GateKind::gdn, 16, 48}, HeadShape{GateKind::kda, 32, 32}}) {
    for (const DType state : {DType::bf16, DType::f32}) {
      for (const int batch : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
        for (const int block : {8, 16, 32}) {
          if (window > block) continue;
          const Status status = sweep.run(heads, state, batch, block);
          if (!status.ok()) {
            std::fprintf(stderr, "%s\n", status.error().message.c_str());
            return 2;
          }
        }
      }
    }
  }
  if (!json.empty()) std::ofstream(json) << "[\n" << sweep.json() << "\n]\n";
  return 0;
}

}  // namespace
}  // namespace replayssm::bench

int main(int argc, char** argv) {
  std::string json, filter;
  int window = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--filter") == 0) filter = argv[i + 1];
    if (std::strcmp(argv[i], "--window") == 0) window = std::atoi(argv[i + 1]);
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: this machine has no GPU\n");
    return 77;
  }
  return replayssm::bench::run(json, filter, window);
}
