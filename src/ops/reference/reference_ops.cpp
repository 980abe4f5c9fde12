#include <algorithm>

#include "ops/advance.h"
#include "ops/check_arguments.h"
#include "ops/reference/head_memory.h"
#include "ops/reference/ops.h"

namespace replayssm {
namespace reference {

void zero_outputs(const StepArgs& args, const RowTokens& row) {
  const std::size_t width = static_cast<std::size_t>(args.shape.value_heads) * kValueDim;
  std::fill_n(args.out + row.first_token * width, row.tokens * width, 0.0f);
}

namespace {

class ReferenceOps final : public LinearOps {
 public:
  std::string_view name() const override { return "reference"; }

  Status gates(const GateArgs& args) override {
    REPLAYSSM_TRY(check_.gates(args));
    reference::gates(args);
    return {};
  }
  Status packed_step(const StepArgs& args) override {
    REPLAYSSM_TRY(check_.step(args, StepKind::packed));
    reference::packed_step(args);
    return {};
  }
  Status window_step(const StepArgs& args) override {
    REPLAYSSM_TRY(check_.step(args, StepKind::window));
    reference::window_step(args);
    return {};
  }
  Status chunk_prefill(const StepArgs& args) override {
    REPLAYSSM_TRY(check_.step(args, StepKind::chunk));
    reference::chunk_prefill(args);
    return {};
  }
  Status fold(const FoldArgs& args) override {
    REPLAYSSM_TRY(check_.fold(args));
    reference::fold(args);
    return {};
  }
  Status advance(const AdvanceArgs& args) override {
    REPLAYSSM_TRY(check_.advance(args));
    advance_on_host(args);
    return {};
  }
  Status conv_window(const ConvArgs& args) override {
    REPLAYSSM_TRY(check_.conv(args, StepKind::window));
    reference::conv_window(args);
    return {};
  }
  Status conv_chunk(const ConvArgs& args) override {
    REPLAYSSM_TRY(check_.conv(args, StepKind::chunk));
    reference::conv_chunk(args);
    return {};
  }

  Status export_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<float> out) const override {
    REPLAYSSM_TRY(
        ArgumentCheck({DType::f64}, {DType::f64}).transfer(shape, states, slot, out.size()));
    const double* data = static_cast<const double*>(states.data) + slot.value * states.slot_stride;
    std::transform(data, data + out.size(), out.begin(),
                   [](double x) { return static_cast<float>(x); });
    return {};
  }
  Status import_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<const float> in) const override {
    REPLAYSSM_TRY(
        ArgumentCheck({DType::f64}, {DType::f64}).transfer(shape, states, slot, in.size()));
    std::copy(in.begin(), in.end(),
              static_cast<double*>(states.data) + slot.value * states.slot_stride);
    return {};
  }

  DType state_type_for(DType) const override { return DType::f64; }

 private:
  ArgumentCheck check_{{DType::f64}, {DType::f64}};
};

}  // namespace
}  // namespace reference

std::unique_ptr<LinearOps> make_reference_ops() {
  return std::make_unique<reference::ReferenceOps>();
}

}  // namespace replayssm
