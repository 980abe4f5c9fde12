// A small engine that does random things to many sequences at once, so that a test can compare each
// of them with the same tokens decoded alone. It keeps slots by reference count, as the engine
// does.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {

// A sequence: its tokens, of which the first `outputs` / width are evaluated.
struct LiveSequence {
  Tokens tokens;
  std::vector<float> outputs;
  int row = -1;  // -1: paused
  PausedSequence paused;
};

class RandomSequences {
 public:
  static constexpr int kRows = 5;
  static constexpr int kSlots = 12;
  static constexpr int kLongest = 160;

  RandomSequences(const Variant& variant, LinearOps& ops, std::uint32_t seed)
      : variant_(variant),
        memory_(ops, variant.shape,
                FoldGeometry::make(variant.block, variant.window, RingAccess::staged).value(),
                variant.types, kRows, kSlots),
        random_(seed),
        references_(kSlots, 0) {}

  const std::vector<LiveSequence>& sequences() const { return sequences_; }

  void act() {
    switch (below(8)) {
      case 0:
        start();
        break;
      case 1:
        fork();
        break;
      case 2:
        pause();
        break;
      case 3:
        resume();
        break;
      case 4:
        step(Route::chunk);
        break;
      default:
        step(Route::window);
        break;
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }

  Tokens fresh_tokens() {
    return make_tokens(variant_.shape, kLongest, static_cast<std::uint32_t>(random_() % 100000),
                       {.bf16_values = variant_.types.key == DType::bf16});
  }

  int free_row() const {
    for (int row = 0; row < kRows; ++row) {
      if (memory_.base[row] == kNullSlot) return row;
    }
    return -1;
  }
  int free_slots() const {
    return static_cast<int>(std::count(references_.begin(), references_.end(), 0));
  }
  SlotId take_slot() {
    const auto at = std::find(references_.begin(), references_.end(), 0);
    *at = 1;
    return SlotId{static_cast<std::int32_t>(at - references_.begin())};
  }
  void release(SlotId slot) {
    if (--references_[slot.value] > 0) return;
    memory_.set_slot_bytes(slot.value,
                           std::vector<unsigned char>(memory_.slot_bytes(slot.value).size(), 0xff));
  }

  int pick(bool running) {
    std::vector<int> candidates;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if ((sequences_[i].row >= 0) == running) candidates.push_back(static_cast<int>(i));
    }
    if (candidates.empty()) return -1;
    return candidates[below(static_cast<int>(candidates.size()))];
  }

  void start() {
    const int row = free_row();
    if (row < 0 || free_slots() < 1 + kRows) return;
    memory_.admit(row, take_slot().value);
    sequences_.push_back({fresh_tokens(), {}, row, {}});
  }

  // The child shares the base, copies the records and goes its own way.
  void fork() {
    const int parent = pick(true);
    const int row = free_row();
    if (parent < 0 || row < 0 || free_slots() < 1 + kRows) return;
    LiveSequence child = sequences_[parent];
    const int from = child.row;
    const Tokens other = fresh_tokens();
    const int kept = memory_.committed[from].tokens;
    const auto graft = [&](std::vector<float>& to, const std::vector<float>& with,
                           std::size_t stride) {
      std::copy(with.begin() + kept * stride, with.end(), to.begin() + kept * stride);
    };
    graft(child.tokens.qkv, other.qkv, other.shape.channels());
    graft(child.tokens.gate, other.gate, other.gate_stride());
    graft(child.tokens.beta, other.beta, other.shape.value_heads);
    child.row = row;
    memory_.base[row] = memory_.base[from];
    memory_.home[row] = memory_.base[row];
    ++references_[memory_.base[row].value];
    memory_.committed[row] = memory_.committed[from];
    memory_.checkpoint[row] = memory_.checkpoint[from];
    for (Depth p = memory_.checkpoint[from]; p < memory_.committed[from]; p += 1) {
      memory_.set_record(row, p, memory_.record(from, p));
    }
    sequences_.push_back(std::move(child));
  }

  void pause() {
    const int which = pick(true);
    if (which < 0) return;
    LiveSequence& s = sequences_[which];
    s.paused = memory_.take(s.row);
    release(memory_.base[s.row]);
    memory_.committed[s.row] = memory_.checkpoint[s.row] = Depth{0};
    memory_.poison_unread_records(s.row, 0xff);
    memory_.base[s.row] = memory_.home[s.row] = kNullSlot;
    s.row = -1;
  }

  void resume() {
    const int which = pick(false);
    const int row = free_row();
    if (which < 0 || row < 0 || free_slots() < 1 + kRows) return;
    sequences_[which].row = row;
    memory_.put(sequences_[which].paused, row, take_slot().value);
  }

  // A step over some of the running sequences and, now and then, an idle row.
  void step(Route route) {
    std::vector<Part> parts;
    std::vector<int> who;
    std::vector<Tokens> windows(sequences_.size());
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      LiveSequence& s = sequences_[i];
      if (s.row < 0 || below(4) == 0) continue;
      const int done = memory_.committed[s.row].tokens;
      const int most = route == Route::window ? variant_.window : 1 + below(70);
      const int count = std::min(1 + below(most), kLongest - done);
      if (count < 1) continue;
      const int accepted = route == Route::window ? 1 + below(count) : count;
      windows[i] = s.tokens;
      const std::size_t channels = variant_.shape.channels();
      std::fill(windows[i].qkv.begin() + (done + accepted) * channels, windows[i].qkv.end(),
                std::nanf(""));
      parts.push_back({s.row, &windows[i], done, count, accepted});
      who.push_back(static_cast<int>(i));
      // A shared base has no writer: the row that may fold gets a home of its own first.
      if (references_[memory_.base[s.row].value] > 1) memory_.home[s.row] = take_slot();
    }
    const int idle = free_row();
    const Tokens nothing = make_tokens(variant_.shape, 1, 1);
    if (idle >= 0 && below(2) == 0) {
      parts.push_back({idle, &nothing, 0, 1});
      who.push_back(-1);
    }
    if (parts.empty()) return;
    std::vector<SlotId> bases = memory_.base;
    const auto out = run_step(memory_, route, parts);
    const std::size_t width = static_cast<std::size_t>(variant_.shape.value_heads) * kValueDim;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const int row = parts[p].row;
      if (who[p] < 0) {
        EXPECT_EQ(out[p], std::vector<float>(width, 0.0f)) << "idle row";
        continue;
      }
      auto& outputs = sequences_[who[p]].outputs;
      outputs.insert(outputs.end(), out[p].begin(), out[p].begin() + parts[p].accepted * width);
      if (memory_.home[row] == bases[row]) continue;
      if (memory_.base[row] == memory_.home[row]) {
        release(bases[row]);
      } else {
        release(memory_.home[row]);
        memory_.home[row] = memory_.base[row];
      }
    }
  }

  Variant variant_;
  LayerMemory memory_;
  std::mt19937 random_;
  std::vector<int> references_;
  std::vector<LiveSequence> sequences_;
};

}  // namespace replayssm::tests
