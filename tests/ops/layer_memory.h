// The memory of one linear layer for tests: states, rings and cursors, all NaN until written.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "ops/linear_ops.h"
#include "ops/token_source.h"
#include "replay/cursor.h"

namespace replayssm::tests {

struct StorageTypes {
  DType state = DType::f32;
  DType key = DType::f32;
  DType correction = DType::f32;
};

// The types a backend really uses where fp32 is asked for.
inline StorageTypes types_for(const LinearOps& ops, StorageTypes wanted) {
  if (ops.state_type_for(DType::f32) == DType::f64) {
    wanted.state = wanted.correction = DType::f64;
  }
  return wanted;
}

// A sequence outside of any row: what a pause serialises.
struct PausedSequence {
  Cursor cursor;
  std::vector<float> state;                         // [HV, V, K]; empty at depth 0
  std::vector<std::vector<unsigned char>> records;  // one entry per pending record
};

// Owns everything; views point into it.
class LayerMemory {
 public:
  LayerMemory(LinearOps& ops, HeadShape shape, FoldGeometry geometry, StorageTypes types, int rows,
              int slots)
      : ops_(ops),
        shape_(shape),
        geometry_(geometry),
        types_(types_for(ops, types)),
        rows_(rows),
        slots_(slots),
        states_(slots * shape.state_elements() * size_of(types_.state)),
        keys_(ring_entries(shape.key_heads) * kKeyDim * size_of(types_.key)),
        key_scales_(ring_entries(shape.key_heads)),
        corrections_(ring_entries(shape.value_heads) * kValueDim * size_of(types_.correction)),
        gates_(ring_entries(shape.value_heads) * shape.gate_width()),
        committed(rows, Depth{0}),
        checkpoint(rows, Depth{0}),
        base(rows, kNullSlot),
        home(rows, kNullSlot) {
    poison();
  }

  // NaN in every state and ring.
  void poison() {
    states_.fill_bytes(0xff);
    keys_.fill_bytes(0xff);
    key_scales_.fill_bytes(0xff);
    corrections_.fill_bytes(0xff);
    gates_.fill_bytes(0xff);
  }

  // Starts an empty sequence in `row` whose checkpoints live in `slot`.
  void admit(int row, int slot) {
    committed[row] = checkpoint[row] = Depth{0};
    base[row] = home[row] = SlotId{slot};
  }

  const HeadShape& shape() const { return shape_; }
  const FoldGeometry& geometry() const { return geometry_; }
  const StorageTypes& types() const { return types_; }
  LinearOps& ops() const { return ops_; }
  int slots() const { return slots_; }

  StateView states() { return {states_.data(), types_.state, shape_.state_elements(), slots_}; }
  RingView rings() {
    return {keys_.data(),  types_.key, key_scales_.data(),   corrections_.data(), types_.correction,
            gates_.data(), rows_,      geometry_.ring_rows()};
  }
  CursorView cursors() {
    return {committed.data(), checkpoint.data(), base.data(), home.data(), rows_};
  }
  Cursor cursor(int row) const { return {committed[row], checkpoint[row]}; }

  std::vector<unsigned char> slot_bytes(int slot) const {
    const std::size_t size = shape_.state_elements() * size_of(types_.state);
    const unsigned char* from = states_.data() + slot * size;
    return {from, from + size};
  }
  void set_slot_bytes(int slot, const std::vector<unsigned char>& bytes) {
    std::memcpy(states_.data() + slot * bytes.size(), bytes.data(), bytes.size());
  }

  // The record of `position`, all heads: keys, scales, corrections, gates.
  std::vector<unsigned char> record(int row, Depth position) {
    std::vector<unsigned char> bytes;
    each_part(row, geometry_.ring_row(position), [&](unsigned char* part, std::size_t size) {
      bytes.insert(bytes.end(), part, part + size);
    });
    return bytes;
  }
  void set_record(int row, Depth position, const std::vector<unsigned char>& bytes) {
    std::size_t at = 0;
    each_part(row, geometry_.ring_row(position), [&](unsigned char* part, std::size_t size) {
      std::memcpy(part, bytes.data() + at, size);
      at += size;
    });
  }
  // Overwrites every record outside [c, t) with a byte pattern.
  void poison_unread_records(int row, unsigned char byte) {
    for (int r = 0; r < geometry_.ring_rows(); ++r) {
      bool live = false;
      for (Depth p = checkpoint[row]; p < committed[row]; p += 1) {
        live = live || geometry_.ring_row(p) == r;
      }
      if (live) continue;
      each_part(row, r,
                [&](unsigned char* part, std::size_t size) { std::memset(part, byte, size); });
    }
  }
  std::vector<unsigned char> all_bytes() {
    std::vector<unsigned char> bytes(states_.span().begin(), states_.span().end());
    for (int row = 0; row < rows_; ++row) {
      for (int r = 0; r < geometry_.ring_rows(); ++r) {
        each_part(row, r, [&](unsigned char* part, std::size_t size) {
          bytes.insert(bytes.end(), part, part + size);
        });
      }
    }
    return bytes;
  }

  // Takes a sequence out of its row; put() brings it back in any row and slot.
  PausedSequence take(int row) {
    PausedSequence paused{cursor(row), {}, {}};
    if (checkpoint[row].tokens > 0) {
      paused.state.resize(shape_.state_elements());
      EXPECT_TRUE(ops_.export_state(shape_, states(), base[row], paused.state).ok());
    }
    for (Depth p = checkpoint[row]; p < committed[row]; p += 1) {
      paused.records.push_back(record(row, p));
    }
    return paused;
  }
  void put(const PausedSequence& paused, int row, int slot) {
    admit(row, slot);
    committed[row] = paused.cursor.committed;
    checkpoint[row] = paused.cursor.checkpoint;
    if (!paused.state.empty()) {
      EXPECT_TRUE(ops_.import_state(shape_, states(), SlotId{slot}, paused.state).ok());
    }
    for (int j = 0; j < paused.cursor.pending(); ++j) {
      set_record(row, paused.cursor.checkpoint + j, paused.records[j]);
    }
  }

 private:
  std::size_t ring_entries(int heads) const {
    return static_cast<std::size_t>(rows_) * heads * geometry_.ring_rows();
  }
  template <class Visit>
  void each_part(int row, int r, Visit&& visit) {
    const auto entry = [&](int heads, int head) {
      return (static_cast<std::size_t>(row) * heads + head) * geometry_.ring_rows() + r;
    };
    const auto bytes = [](auto& buffer) { return reinterpret_cast<unsigned char*>(buffer.data()); };
    for (int h = 0; h < shape_.key_heads; ++h) {
      const std::size_t size = kKeyDim * size_of(types_.key);
      visit(bytes(keys_) + entry(shape_.key_heads, h) * size, size);
      visit(bytes(key_scales_) + entry(shape_.key_heads, h) * sizeof(float), sizeof(float));
    }
    for (int h = 0; h < shape_.value_heads; ++h) {
      const std::size_t size = kValueDim * size_of(types_.correction);
      const std::size_t gate = shape_.gate_width() * sizeof(float);
      visit(bytes(corrections_) + entry(shape_.value_heads, h) * size, size);
      visit(bytes(gates_) + entry(shape_.value_heads, h) * gate, gate);
    }
  }

  LinearOps& ops_;
  HeadShape shape_;
  FoldGeometry geometry_;
  StorageTypes types_;
  int rows_;
  int slots_;
  AlignedBuffer<unsigned char> states_;
  AlignedBuffer<unsigned char> keys_;
  AlignedBuffer<float> key_scales_;
  AlignedBuffer<unsigned char> corrections_;
  AlignedBuffer<float> gates_;

 public:
  std::vector<Depth> committed, checkpoint;
  std::vector<SlotId> base, home;
};

enum class Route { window, chunk, packed };

// Tokens [from, from + count) of `tokens` for one row of a step.
struct Part {
  int row = 0;
  const Tokens* tokens = nullptr;
  int from = 0;
  int count = 0;
  int accepted = -1;  // -1: all
};

// One step over some rows, cursors moved; the outputs [count, HV, V] of each part.
inline std::vector<std::vector<float>> run_step(LayerMemory& memory, Route route,
                                                const std::vector<Part>& parts) {
  std::vector<float> qkv, gate, beta;
  std::vector<RowTokens> rows;
  std::vector<int> accepted;
  int total = 0;
  for (const Part& part : parts) {
    const Tokens& t = *part.tokens;
    const auto add = [&](std::vector<float>& to, const std::vector<float>& from,
                         std::size_t stride) {
      to.insert(to.end(), from.begin() + part.from * stride,
                from.begin() + (part.from + part.count) * stride);
    };
    add(qkv, t.qkv, t.shape.channels());
    add(gate, t.gate, t.gate_stride());
    add(beta, t.beta, t.shape.value_heads);
    rows.push_back({RowIndex{part.row}, total, part.count,
                    route == Route::chunk ? Phase::prefill : Phase::decode});
    accepted.push_back(part.accepted < 0 ? part.count : part.accepted);
    total += part.count;
  }
  const std::size_t width = static_cast<std::size_t>(memory.shape().value_heads) * kValueDim;
  std::vector<float> out(total * width, std::nanf(""));
  StepArgs args;
  args.shape = memory.shape();
  args.geometry = memory.geometry();
  args.states = memory.states();
  args.rings = memory.rings();
  args.cursors = memory.cursors();
  args.rows = rows;
  args.qkv = qkv.data();
  args.gate = gate.data();
  args.beta = beta.data();
  args.out = out.data();
  LinearOps& ops = memory.ops();
  const Status status = route == Route::window  ? ops.window_step(args)
                        : route == Route::chunk ? ops.chunk_prefill(args)
                                                : ops.packed_step(args);
  EXPECT_TRUE(status.ok()) << status.error().message;
  AdvanceArgs advance{memory.geometry(),
                      route == Route::packed ? Recurrence::packed : Recurrence::replay,
                      memory.cursors(), rows, accepted};
  EXPECT_TRUE(ops.advance(advance).ok());
  std::vector<std::vector<float>> outputs;
  for (const RowTokens& row : rows) {
    outputs.emplace_back(out.begin() + row.first_token * width,
                         out.begin() + (row.first_token + row.tokens) * width);
  }
  return outputs;
}

}  // namespace replayssm::tests
