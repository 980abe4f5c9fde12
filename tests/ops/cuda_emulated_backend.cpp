// The CUDA convolutions' device code on the CPU, as a backend.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/bfloat16.h"
#include "ops/advance.h"
#include "ops/backends.h"
#include "ops/check_arguments.h"
#include "ops/cuda/conv.cuh"

namespace replayssm::tests {
namespace {

class EmulatedOps final : public LinearOps {
 public:
  std::string_view name() const override { return "emulated cuda"; }
  DType activation_type() const override { return DType::bf16; }

  Status conv_window(const ConvArgs& args) override { return convolve(args, StepKind::window); }
  Status conv_chunk(const ConvArgs& args) override { return convolve(args, StepKind::chunk); }
  Status advance(const AdvanceArgs& args) override {
    REPLAYSSM_TRY(check_.advance(args));
    advance_on_host(args);
    return {};
  }

  Status gates(const GateArgs&) override { return missing(); }
  Status packed_step(const StepArgs&) override { return missing(); }
  Status window_step(const StepArgs&) override { return missing(); }
  Status chunk_prefill(const StepArgs&) override { return missing(); }
  Status fold(const FoldArgs&) override { return missing(); }
  Status export_state(const HeadShape&, const StateView&, SlotId, std::span<float>) const override {
    return missing();
  }
  Status import_state(const HeadShape&, const StateView&, SlotId,
                      std::span<const float>) const override {
    return missing();
  }

 private:
  static Status missing() { return Error{"emulated cuda has conv_window, conv_chunk and advance"}; }

  template <int kTurn>
  static void convolve(const cuda::ConvLaunch& args, const cuda::ConvWeights& weights,
                       const cuda::PlacedConvTask& task, int channel, const auto& ready) {
    const auto start = cuda::begin_task<kTurn>(args, task, channel, ready);
    if (args.out_f32 != 0) {
      cuda::convolve<true, kTurn>(args, weights, task, start, channel);
    } else {
      cuda::convolve<false, kTurn>(args, weights, task, start, channel);
    }
  }

  Status convolve(const ConvArgs& args, StepKind kind) {
    REPLAYSSM_TRY(check_.conv(args, kind));
    REPLAYSSM_TRY(cuda::conv_fits(args));
    const std::vector<cuda::ConvTask> tasks = cuda::conv_tasks(args.rows);
    const cuda::ConvLaunch launch = cuda::conv_launch(args, kind == StepKind::chunk, tasks.data(),
                                                      static_cast<int>(tasks.size()));
    // The inputs are not there before a thread says that it is ready for them.
    cuda::ConvLaunch early = launch;
    int last = 0;
    for (const RowTokens& row : args.rows) last = std::max(last, row.first_token + row.tokens);
    std::vector<bf16> inputs(static_cast<std::size_t>(last) *
                             static_cast<std::size_t>(launch.channels));
    early.input = inputs.data();
    const auto arrive = [&] { std::copy_n(launch.input, inputs.size(), inputs.begin()); };
    // Threads run in no order on a GPU; the one that moves a row's inputs may well be first or
    // last.
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const std::size_t turn = backwards_ ? tasks.size() - 1 - i : i;
      for (int channel = 0; channel < launch.channels; channel += cuda::kConvChannels) {
        std::fill(inputs.begin(), inputs.end(), to_bf16(std::numeric_limits<float>::quiet_NaN()));
        const cuda::PlacedConvTask task = cuda::placed(launch, tasks[turn]);
        const cuda::ConvWeights weights = cuda::load_conv_weights(launch, channel);
        if (launch.one_token != 0) {
          convolve<1>(early, weights, task, channel, arrive);
        } else {
          convolve<4>(early, weights, task, channel, arrive);
        }
      }
    }
    backwards_ = !backwards_;
    return {};
  }

  ArgumentCheck check_{
      {DType::f32, DType::bf16}, {DType::f32, DType::bf16}, {DType::bf16}, DType::bf16};
  bool backwards_ = false;
};

}  // namespace

OwnedOps make_emulated_cuda_backend() {
  OwnedOps owned;
  owned.ops = std::make_unique<EmulatedOps>();
  return owned;
}

}  // namespace replayssm::tests
