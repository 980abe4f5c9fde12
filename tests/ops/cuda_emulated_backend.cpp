// The CUDA convolutions' device code on the CPU, as a backend.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "core/bfloat16.h"
#include "ops/advance.h"
#include "ops/backends.h"
#include "ops/check_arguments.h"
#include "ops/cuda/conv.cuh"

namespace replayssm::tests {
namespace {

// One block of a launch, whose inputs are not there before its threads say that they are ready for
// them.
struct RunningBlock {
  cuda::ConvLaunch launch;
  cuda::ConvPlace at;
  std::vector<bf16> inputs;  // NaN, [token][channel]
  int tokens;
  std::vector<char> is_ready = std::vector<char>(cuda::kConvThreads, 0);
  cuda::PlacedConvTask placed[cuda::kConvThreads] = {};
  std::unique_ptr<cuda::emulated::Block> block = nullptr;

  // What its threads did is released to `end`.
  void run(const void* end) {
    cuda::ConvLaunch early = launch;
    early.settled = 1;
    early.input = inputs.data();
    block = std::make_unique<cuda::emulated::Block>(0, 1, cuda::kConvThreads, end, [this, early] {
      cuda::with_conv_shape(early, [&]<class Shape>(Shape) {
        if (early.out_f32 != 0) {
          cuda::conv_block<true, Shape>(early, at, placed, [this] { ready(); });
        } else {
          cuda::conv_block<false, Shape>(early, at, placed, [this] { ready(); });
        }
      });
    });
    block->run();
  }

  // This thread's channels alone come: others may not have waited.
  void ready() {
    char& mine = is_ready[static_cast<std::size_t>(cuda::ptx::thread())];
    if (mine != 0) return;
    mine = 1;
    const int channel = (at.slab * cuda::kConvThreads + cuda::ptx::thread()) * cuda::kConvChannels;
    if (channel >= launch.channels) return;
    for (int token = 0; token < tokens; ++token) {
      std::copy_n(launch.input + token * launch.input_stride + channel, cuda::kConvChannels,
                  inputs.begin() + token * launch.input_stride + channel);
    }
  }
};

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
    int last = 0;
    for (const RowTokens& row : args.rows) last = std::max(last, row.first_token + row.tokens);
    const std::vector<bf16> unready(
        static_cast<std::size_t>(last) * static_cast<std::size_t>(launch.channels),
        to_bf16(std::numeric_limits<float>::quiet_NaN()));
    constexpr int kBlockChannels = cuda::kConvThreads * cuda::kConvChannels;
    const int slabs = (launch.channels + kBlockChannels - 1) / kBlockChannels;
    // Few shares, so that a block has many tasks.
    const int shares = std::min(launch.task_count, 3);
    // What blocks have touched is freed at the end, for the sanitizer's sake: nothing orders them.
    std::vector<std::unique_ptr<RunningBlock>> blocks;
    const char end = 0;
    // Blocks run in no order on a GPU; the one that moves a row's inputs may well be first or last.
    for (int i = 0; i < shares * slabs; ++i) {
      const int turn = backwards_ ? shares * slabs - 1 - i : i;
      blocks.push_back(std::make_unique<RunningBlock>(
          RunningBlock{launch, {turn % slabs, slabs, turn / slabs, shares}, unready, last}));
      blocks.back()->run(&end);
    }
    cuda::emulated::acquire(&end);
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
