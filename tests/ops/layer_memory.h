// The memory of one linear layer for tests: states, rings and cursors, all NaN until written.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/bfloat16.h"
#include "ops/backends.h"
#include "ops/token_source.h"
#include "replay/cursor.h"

namespace replayssm::tests {

struct StorageTypes {
  DType state = DType::f32;
  DType key = DType::f32;
  DType correction = DType::f32;
};

// The types a backend really uses where others are asked for.
inline StorageTypes types_for(const LinearOps& ops, StorageTypes wanted) {
  if (ops.activation_type() == DType::bf16) {
    wanted.key = DType::bf16;
    wanted.correction = wanted.state;
  }
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

// Owns everything, on the host. Views point into it, or into the backend's copy of it: taking a
// view hands the host's numbers over, fetch() brings the backend's back.
class LayerMemory {
 public:
  LayerMemory(const OwnedOps& owned, HeadShape shape, FoldGeometry geometry, StorageTypes types,
              int rows, int slots)
      : LayerMemory(*owned.ops, shape, geometry, types, rows, slots, owned.memory.get()) {}
  LayerMemory(LinearOps& ops, HeadShape shape, FoldGeometry geometry, StorageTypes types, int rows,
              int slots, BackendMemory* backend = nullptr)
      : ops_(ops),
        backend_(backend),
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
        home(rows, kNullSlot),
        lent_states_(backend, states_.span()),
        lent_keys_(backend, keys_.span()),
        lent_key_scales_(backend, key_scales_.span()),
        lent_corrections_(backend, corrections_.span()),
        lent_gates_(backend, gates_.span()),
        lent_committed_(backend, std::span(committed)),
        lent_checkpoint_(backend, std::span(checkpoint)),
        lent_base_(backend, std::span(base)),
        lent_home_(backend, std::span(home)) {
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
  BackendMemory* backend() const { return backend_; }
  int slots() const { return slots_; }

  StateView states() { return {lent_states_.put(), types_.state, shape_.state_elements(), slots_}; }
  RingView rings() {
    return {lent_keys_.put(),
            types_.key,
            lent_key_scales_.put(),
            lent_corrections_.put(),
            types_.correction,
            lent_gates_.put(),
            rows_,
            geometry_.ring_rows()};
  }
  CursorView cursors() {
    cursors_lent_ = true;
    return {lent_committed_.put(), lent_checkpoint_.put(), lent_base_.put(), lent_home_.put(),
            rows_};
  }
  // What operations did, back to the host. Cursors that no operation was given since the last time
  // are the host's, and not what the backend still has of them.
  void fetch() {
    lent_states_.get(), lent_keys_.get(), lent_key_scales_.get(), lent_corrections_.get();
    lent_gates_.get();
    if (cursors_lent_) lent_committed_.get(), lent_checkpoint_.get(), lent_base_.get();
    cursors_lent_ = false;
  }
  Status export_state(SlotId slot, std::span<float> out) {
    return ops_.export_state(shape_, states(), slot, out);
  }
  Status import_state(SlotId slot, std::span<const float> in) {
    const Status status = ops_.import_state(shape_, states(), slot, in);
    lent_states_.get();
    return status;
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
      EXPECT_TRUE(export_state(base[row], paused.state).ok());
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
      EXPECT_TRUE(import_state(SlotId{slot}, paused.state).ok());
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
  BackendMemory* backend_;
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

 private:
  Lent<unsigned char> lent_states_, lent_keys_;
  Lent<float> lent_key_scales_;
  Lent<unsigned char> lent_corrections_;
  Lent<float> lent_gates_;
  Lent<Depth> lent_committed_, lent_checkpoint_;
  Lent<SlotId> lent_base_, lent_home_;
  bool cursors_lent_ = false;
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
  std::vector<bf16> rounded;  // exact where the tokens are bf16 values
  if (memory.ops().activation_type() == DType::bf16) {
    for (float x : qkv) rounded.push_back(to_bf16(x));
  }
  BackendMemory* const backend = memory.backend();
  Lent<float> lent_qkv(backend, qkv), lent_gate(backend, gate), lent_beta(backend, beta),
      lent_out(backend, out);
  Lent<bf16> lent_rounded(backend, rounded);
  StepArgs args;
  args.shape = memory.shape();
  args.geometry = memory.geometry();
  args.states = memory.states();
  args.rings = memory.rings();
  args.cursors = memory.cursors();
  args.rows = rows;
  args.qkv = lent_qkv.put();
  args.qkv_bf16 = lent_rounded.put();
  args.gate = lent_gate.put();
  args.beta = lent_beta.put();
  args.out = lent_out.put();
  LinearOps& ops = memory.ops();
  const Status status = route == Route::window  ? ops.window_step(args)
                        : route == Route::chunk ? ops.chunk_prefill(args)
                                                : ops.packed_step(args);
  EXPECT_TRUE(status.ok()) << status.error().message;
  AdvanceArgs advance{memory.geometry(),
                      route == Route::packed ? Recurrence::packed : Recurrence::replay,
                      memory.cursors(), rows, accepted};
  EXPECT_TRUE(ops.advance(advance).ok());
  lent_out.get();
  memory.fetch();
  std::vector<std::vector<float>> outputs;
  for (const RowTokens& row : rows) {
    outputs.emplace_back(out.begin() + row.first_token * width,
                         out.begin() + (row.first_token + row.tokens) * width);
  }
  return outputs;
}

// Tokens [from, from + count) of one row, in the largest steps that the backend has: for tests that
// only need the sequence to have got there. The outputs of all.
inline std::vector<float> feed(LayerMemory& memory, Route route, const Backend& backend, int row,
                               const Tokens& tokens, int from, int count) {
  const int most = route == Route::chunk    ? count
                   : route == Route::packed ? std::min(count, backend.packed_max)
                                            : std::min(count, memory.geometry().window_max());
  std::vector<float> outputs;
  for (int done = 0; done < count; done += most) {
    const auto out =
        run_step(memory, route, {{row, &tokens, from + done, std::min(most, count - done)}});
    outputs.insert(outputs.end(), out[0].begin(), out[0].end());
  }
  return outputs;
}

}  // namespace replayssm::tests
