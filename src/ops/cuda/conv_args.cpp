#include "ops/cuda/conv_args.h"

#include "ops/cuda/alignment.h"

namespace replayssm::cuda {

std::vector<ConvTask> conv_tasks(std::span<const RowTokens> rows) {
  std::vector<ConvTask> tasks;
  for (const RowTokens& row : rows) {
    for (int offset = 0; offset < row.tokens; offset += kConvTaskTokens) {
      tasks.push_back({row.row.value, row.first_token, row.tokens, offset});
    }
  }
  return tasks;
}

namespace {

void* output(const ConvArgs& args) {
  return args.out_bf16 != nullptr ? static_cast<void*>(args.out_bf16) : args.out;
}

}  // namespace

Status conv_fits(const ConvArgs& args) {
  if (args.rings.type != DType::bf16) {
    return refuse("rings.type", name_of(args.rings.type), "bfloat16");
  }
  if (args.rings.channels % kConvChannels != 0) {
    return refuse("rings.channels", args.rings.channels,
                  fmt::format("a multiple of {}", kConvChannels));
  }
  if (args.tails.slot_stride % kConvChannels != 0) {
    return refuse("tails.slot_stride", args.tails.slot_stride,
                  fmt::format("a multiple of {}", kConvChannels));
  }
  REPLAYSSM_TRY(aligned("rings.inputs", args.rings.inputs));
  REPLAYSSM_TRY(aligned("tails.inputs", args.tails.inputs));
  REPLAYSSM_TRY(aligned("weight", args.weight));
  REPLAYSSM_TRY(aligned("input_bf16", args.input_bf16));
  REPLAYSSM_TRY(aligned("out", output(args)));
  if (output(args) == args.input_bf16) {
    return refuse("out_bf16", "the input's memory", "memory apart from input_bf16");
  }
  return {};
}

ConvLaunch conv_launch(const ConvArgs& args, bool chunk, const ConvTask* tasks, int task_count) {
  ConvLaunch launch;
  launch.tasks = tasks;
  launch.task_count = task_count;
  launch.committed = &args.cursors.committed->tokens;
  launch.checkpoint = &args.cursors.checkpoint->tokens;
  launch.base = &args.cursors.base->value;
  launch.home = &args.cursors.home->value;
  launch.ring = static_cast<bf16*>(args.rings.inputs);
  launch.tail = static_cast<bf16*>(args.tails.inputs);
  launch.tail_stride = static_cast<std::int64_t>(args.tails.slot_stride);
  launch.weight = args.weight;
  launch.input = args.input_bf16;
  launch.input_stride = args.rings.channels;
  launch.out = output(args);
  launch.out_f32 = args.out_bf16 == nullptr ? 1 : 0;
  launch.round_out = args.round_to == DType::bf16 ? 1 : 0;
  launch.channels = args.rings.channels;
  launch.conv_rows = args.rings.conv_rows;
  launch.fold_block = args.geometry.fold_block();
  launch.packed = args.recurrence == Recurrence::packed ? 1 : 0;
  launch.chunk = chunk ? 1 : 0;
  launch.one_token = !chunk && args.geometry.window_max() == 1 ? 1 : 0;
  return launch;
}

}  // namespace replayssm::cuda
