// Which kernel instances a build holds. With REPLAYSSM_CUDA_ONE_INSTANCE it is one for each
// operation, so that a machine without a GPU compiles all kernels in little time.
#pragma once

#include <type_traits>

#include "core/bfloat16.h"
#include "core/result.h"
#include "ops/cuda/step_plan.h"

namespace replayssm::cuda {

#if defined(REPLAYSSM_CUDA_ONE_INSTANCE)
inline constexpr bool kOneInstance = true;
#else
inline constexpr bool kOneInstance = false;
#endif

// The one instance: GDN with bf16 states, full units, and a record tile of 16 or none.
template <class Layout>
inline constexpr bool kIsBuilt =
    !kOneInstance ||
    (Layout::kGate == GateKind::gdn && std::is_same_v<typename Layout::State, bf16> &&
     Layout::kParts == 1 && Layout::kRecords <= 16 && Layout::kRepresentative);

// A visitor that calls launch(Layout{}) where the layout's kernel was built, and elsewhere does not
// instantiate it. Error: it was not built.
template <class Launch>
auto if_built(const StepPlan& plan, Launch launch) {
  return [&plan, launch]<class Layout>(Layout layout) -> Status {
    if constexpr (kIsBuilt<Layout>) {
      return launch(layout);
    } else {
      return Error{fmt::format(
          "cuda: no kernel for {} with {} states in this build, which has one instance for each "
          "operation; expected a build without REPLAYSSM_CUDA_ONE_INSTANCE",
          plan.gate == GateKind::gdn ? "gdn" : "kda", name_of(plan.state))};
    }
  };
}

}  // namespace replayssm::cuda
