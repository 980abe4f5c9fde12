#include <algorithm>
#include <iterator>

#include "hwy/highway.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu_isa.h"

namespace replayssm {
namespace {

struct Isa {
  std::string_view name;
  std::int64_t target;
};

// Best first.
constexpr Isa kIsas[] = {
#if HWY_ARCH_X86
    {"avx512", HWY_AVX3},
    {"avx2", HWY_AVX2},
    {"sse4", HWY_SSE4},
#elif HWY_ARCH_ARM
    {"neon", HWY_NEON},
#endif
    {"scalar", HWY_SCALAR | HWY_EMU128},
};

// Scalar code needs no support; the library that detects the processor may call it another name.
bool available(const Isa& isa) {
  if ((isa.target & HWY_TARGETS) == 0) return false;
  return isa.name == "scalar" || (isa.target & hwy::SupportedTargets()) != 0;
}

}  // namespace

std::vector<std::string> cpu_isas() {
  std::vector<std::string> names;
  for (const Isa& isa : kIsas) {
    if (available(isa)) names.emplace_back(isa.name);
  }
  return names;
}

Status force_cpu_isa(std::string_view name) {
  if (name == "auto") {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return {};
  }
  for (const Isa& isa : kIsas) {
    if (isa.name != name || !available(isa)) continue;
    hwy::GetChosenTarget().Update(isa.target);
    return {};
  }
  return refuse("--cpu-isa", name, fmt::format("auto, {}", fmt::join(cpu_isas(), ", ")));
}

std::string_view cpu_isa() {
  const std::int64_t target = cpu::chosen_target();
  const auto* found = std::find_if(std::begin(kIsas), std::end(kIsas),
                                   [&](const Isa& isa) { return (isa.target & target) != 0; });
  return found == std::end(kIsas) ? "unknown" : found->name;
}

}  // namespace replayssm
