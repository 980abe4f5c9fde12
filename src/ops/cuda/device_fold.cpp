#include "ops/cuda/device_fold.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::cuda {
namespace {

// Memory of the stream's pool: it is taken and given back in the order of the stream.
class PoolMemory {
 public:
  explicit PoolMemory(cudaStream_t stream) : stream_(stream) {}
  ~PoolMemory() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;
  Status take(std::size_t bytes) {
    return bytes == 0 ? Status() : REPLAYSSM_CUDA_STATUS(cudaMallocAsync(&data_, bytes, stream_));
  }
  char* data() const { return static_cast<char*>(data_); }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
};

// One launch: some entries, one block of records each.
struct Pass {
  std::vector<FoldLayer> layers;
  std::vector<std::int32_t> row, from, records, source, destination;
  std::vector<void*> buffer;
  std::size_t layers_at = 0, row_at = 0, from_at = 0, records_at = 0, source_at = 0,
              destination_at = 0, buffer_at = 0;

  void add(RowIndex r, Depth depth, int count, int from_slot, int to_slot, void* to) {
    row.push_back(r.value);
    from.push_back(depth.tokens);
    records.push_back(count);
    source.push_back(from_slot);
    destination.push_back(to_slot);
    buffer.push_back(to);
  }
  void write(Tables::Words& words) {
    layers_at = words.add<FoldLayer>(layers);
    row_at = words.add<std::int32_t>(row);
    from_at = words.add<std::int32_t>(from);
    records_at = words.add<std::int32_t>(records);
    source_at = words.add<std::int32_t>(source);
    destination_at = words.add<std::int32_t>(destination);
    buffer_at = words.add<void*>(buffer);
  }
};

FoldLayer layer_of(const StateView& states, const RingView& rings) {
  return {{states.data, static_cast<std::int64_t>(states.slot_stride)},
          {static_cast<bf16*>(rings.keys), rings.key_scales, rings.corrections, rings.gates}};
}

// The layers with one slot each: the buffer's part of the layer.
std::vector<FoldLayer> layers_in_buffer(const replayssm::FoldArgs& args, char* buffer) {
  std::vector<FoldLayer> layers;
  const std::size_t bytes = args.shape.state_elements() * size_of(args.states[0].type);
  for (std::size_t i = 0; i < args.states.size(); ++i) {
    layers.push_back(layer_of(args.states[i], args.rings[i]));
    layers.back().state = {buffer + i * bytes,
                           static_cast<std::int64_t>(args.shape.state_elements())};
  }
  return layers;
}

}  // namespace

Status fold_on_device(const replayssm::FoldArgs& args, const DeviceLimits& limits, Tables& tables,
                      cudaStream_t stream) {
  const DType type = args.states[0].type;
  const int block = args.geometry.fold_block();
  const std::size_t buffer_elements = args.states.size() * args.shape.state_elements();
  const std::size_t buffer_bytes = buffer_elements * size_of(type);

  // Where each row's buffer is folded: itself if the states are fp32.
  std::vector<char*> buffers(args.rows.size(), nullptr);
  std::size_t widened = 0;
  for (const FoldRow& row : args.rows) {
    if (row.source != kNullSlot && !row.buffer.empty() && type == DType::bf16) ++widened;
  }
  PoolMemory pool(stream);
  REPLAYSSM_TRY(pool.take(widened * buffer_bytes));
  std::size_t next = 0;
  for (std::size_t e = 0; e < args.rows.size(); ++e) {
    const FoldRow& row = args.rows[e];
    if (row.source == kNullSlot || row.buffer.empty()) continue;
    buffers[e] = type == DType::bf16 ? pool.data() + next++ * buffer_bytes
                                     : reinterpret_cast<char*>(row.buffer.data());
  }

  std::vector<Pass> passes;
  std::vector<FoldLayer> in_slots;
  for (std::size_t i = 0; i < args.states.size(); ++i) {
    in_slots.push_back(layer_of(args.states[i], args.rings[i]));
  }
  int most = 0;
  for (const FoldRow& row : args.rows) most = std::max(most, row.records);
  for (int done = 0; done == 0 || done < most; done += block) {
    Pass slots;
    slots.layers = in_slots;
    for (std::size_t e = 0; e < args.rows.size(); ++e) {
      const FoldRow& row = args.rows[e];
      if (row.source == kNullSlot || (done > 0 && row.records <= done)) continue;
      const int count = std::min(block, row.records - done);
      if (buffers[e] == nullptr) {
        slots.add(row.row, row.from + done, count,
                  done == 0 ? row.source.value : row.destination.value, row.destination.value,
                  nullptr);
      } else if (done == 0) {
        slots.add(row.row, row.from, count, row.source.value, -1, buffers[e]);
      } else {
        Pass in_buffer;
        in_buffer.layers = layers_in_buffer(args, buffers[e]);
        in_buffer.add(row.row, row.from + done, count, 0, 0, nullptr);
        passes.push_back(std::move(in_buffer));
      }
    }
    if (!slots.row.empty()) passes.push_back(std::move(slots));
  }

  Tables::Words words;
  for (Pass& pass : passes) pass.write(words);
  if (passes.empty()) return {};
  const auto table = tables.write(words, stream);
  if (!table) return table.error();
  for (const Pass& pass : passes) {
    const auto at = [&](std::size_t offset) {
      return reinterpret_cast<const int*>(*table + offset);
    };
    FoldArgs launch;
    launch.layers = reinterpret_cast<const FoldLayer*>(*table + pass.layers_at);
    launch.layer_count = static_cast<int>(pass.layers.size());
    launch.entries = static_cast<int>(pass.row.size());
    launch.row = at(pass.row_at);
    launch.from = at(pass.from_at);
    launch.records = at(pass.records_at);
    launch.source = at(pass.source_at);
    launch.destination = at(pass.destination_at);
    launch.buffer = reinterpret_cast<void* const*>(*table + pass.buffer_at);
    launch.key_heads = args.shape.key_heads;
    launch.value_heads = args.shape.value_heads;
    launch.ring_rows = args.geometry.ring_rows();
    const auto plan =
        plan_fold({args.shape, type, launch.ring_rows,
                   std::max(1, *std::max_element(pass.records.begin(), pass.records.end())),
                   launch.entries, launch.layer_count},
                  limits);
    if (!plan) return plan.error();
    REPLAYSSM_TRY(launch_fold(*plan, launch, stream));
  }
  if (type != DType::bf16) return {};
  for (std::size_t e = 0; e < args.rows.size(); ++e) {
    if (buffers[e] == nullptr) continue;
    REPLAYSSM_TRY(launch_widen(reinterpret_cast<const bf16*>(buffers[e]),
                               args.rows[e].buffer.data(),
                               static_cast<std::int64_t>(buffer_elements), stream));
  }
  return {};
}

}  // namespace replayssm::cuda
