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

  Status convolve(const ConvArgs& args, StepKind kind) {
    REPLAYSSM_TRY(check_.conv(args, kind));
    REPLAYSSM_TRY(cuda::conv_fits(args));
    const std::vector<cuda::ConvTask> tasks = cuda::conv_tasks(args.rows);
    const cuda::ConvLaunch launch = cuda::conv_launch(args, kind == StepKind::chunk, tasks.data(),
                                                      static_cast<int>(tasks.size()));
    // The inputs are not there before a thread of the block says that it is ready for them.
    cuda::ConvLaunch early = launch;
    early.settled = 1;
    int last = 0;
    for (const RowTokens& row : args.rows) last = std::max(last, row.first_token + row.tokens);
    std::vector<bf16> inputs(static_cast<std::size_t>(last) *
                             static_cast<std::size_t>(launch.channels));
    early.input = inputs.data();
    constexpr int kBlockChannels = cuda::kConvThreads * cuda::kConvChannels;
    const int slabs = (launch.channels + kBlockChannels - 1) / kBlockChannels;
    // Few shares, so that a block has many tasks.
    const int shares = std::min(launch.task_count, 3);
    // Blocks run in no order on a GPU; the one that moves a row's inputs may well be first or last.
    for (int i = 0; i < shares * slabs; ++i) {
      const int turn = backwards_ ? shares * slabs - 1 - i : i;
      std::fill(inputs.begin(), inputs.end(), to_bf16(std::numeric_limits<float>::quiet_NaN()));
      std::vector<char> is_ready(cuda::kConvThreads, 0);
      const cuda::ConvPlace at{turn % slabs, slabs, turn / slabs, shares};
      const auto ready = [&] {
        // This thread's channels alone: others may not have waited.
        char& mine = is_ready[static_cast<std::size_t>(cuda::ptx::thread())];
        if (mine != 0) return;
        mine = 1;
        const int channel =
            (at.slab * cuda::kConvThreads + cuda::ptx::thread()) * cuda::kConvChannels;
        if (channel >= launch.channels) return;
        for (int token = 0; token < last; ++token) {
          std::copy_n(launch.input + token * launch.input_stride + channel, cuda::kConvChannels,
                      inputs.begin() + token * launch.input_stride + channel);
        }
      };
      cuda::PlacedConvTask placed[cuda::kConvThreads];
      const char end = 0;
      cuda::emulated::Block block(0, 1, cuda::kConvThreads, &end, [&] {
        cuda::with_conv_shape(early, [&]<class Shape>(Shape) {
          if (early.out_f32 != 0) {
            cuda::conv_block<true, Shape>(early, at, placed, ready);
          } else {
            cuda::conv_block<false, Shape>(early, at, placed, ready);
          }
        });
      });
      block.run();
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
