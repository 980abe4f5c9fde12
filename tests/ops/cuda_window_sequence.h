// Windows of several tokens and chunks against steps of one token: the same tokens, evaluated in
// windows of any length of which any part is accepted, or in chunks of any length, must give the
// same bits.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "cuda_step_image.h"

namespace replayssm::cuda::test {

// Two value heads of one key head, that have `window` tokens in every step.
inline ImageOptions sequence_options(GateKind gate, DType state, int fold_block, int ring_rows,
                                     int window, int entries) {
  ImageOptions o;
  o.heads = {gate, 1, 2};
  o.state = state;
  o.fold_block = fold_block;
  o.ring_rows = ring_rows;
  o.window = window;
  o.entries = entries;
  o.seed = static_cast<std::uint64_t>(fold_block * 10 + window);
  return o;
}

// Runs one window_step over the image, in place.
using StepRunner = std::function<void(Image&)>;

// The whole sequence of each entry: inputs [entry][tokens].
inline void copy_token(const Image& from, int token, Image& to, int at) {
  const auto copy = [&](const auto& source, auto& target) {
    const auto width =
        static_cast<std::ptrdiff_t>(source.size()) / (from.o.entries * from.o.window);
    std::copy_n(source.begin() + token * width, width, target.begin() + at * width);
  };
  copy(from.qkv, to.qkv);
  copy(from.gate, to.gate);
  copy(from.beta, to.beta);
}

// A token that was rejected may be anything.
inline void spoil_token(Image& m, int token) {
  const auto fill = [&](auto& values, auto x) {
    const auto width = static_cast<std::ptrdiff_t>(values.size()) / (m.o.entries * m.o.window);
    std::fill_n(values.begin() + token * width, width, x);
  };
  fill(m.qkv, bf16{static_cast<std::uint16_t>(token % 2 == 0 ? 0x7fc0 : 0x7f80)});
  fill(m.gate, std::nanf(""));
  fill(m.beta, std::nanf(""));
}

inline void advance_image(Image& m, bool chunk) {
  for (int e = 0; e < m.o.entries; ++e) {
    const auto at = static_cast<std::size_t>(m.row[static_cast<std::size_t>(e)]);
    if (m.base[at] < 0) continue;
    const int block = m.o.fold_block, accepted = m.accepted[static_cast<std::size_t>(e)];
    const int blocks = chunk ? (m.committed[at] + accepted - 1) / block - m.checkpoint[at] / block
                             : (m.committed[at] - m.checkpoint[at] >= block ? 1 : 0);
    if (blocks > 0) m.base[at] = m.home[at];
    m.checkpoint[at] += blocks * block;
    m.committed[at] += accepted;
  }
}

// How a sequence is split, and what evaluates it.
struct Split {
  bool chunks = false;  // each accepted whole; or windows, of which any part is
  StepRunner run;
  StepRunner run_one;  // windows of one token
  int ring_rows_of_one = 0;
};

// Empty, or what differs. options.window is the most tokens of a window or chunk, its ring_rows fit
// them; `tokens` of each entry are evaluated from the given depths on.
inline std::string compare_split_with_steps(const ImageOptions& options, int tokens,
                                            const std::vector<int>& checkpoint,
                                            const std::vector<int>& pending, const Split& split) {
  ImageOptions all_options = options, one = options;
  all_options.window = tokens;
  one.window = 1;
  one.ring_rows = split.ring_rows_of_one;
  const Image all = make_image(all_options, checkpoint, pending);
  const auto out_bytes = static_cast<std::size_t>(all.hv()) * kValueDim * sizeof(float);
  Image steps = make_image(one, checkpoint, pending);
  std::vector<std::vector<unsigned char>> outputs;
  for (int i = 0; i < tokens; ++i) {
    for (int e = 0; e < options.entries; ++e) copy_token(all, e * tokens + i, steps, e);
    split.run_one(steps);
    advance_image(steps, false);
    outputs.push_back(steps.out);
  }

  Image windows = make_image(options, checkpoint, pending);
  Draw draw(options.seed + 99);
  std::vector<int> done(static_cast<std::size_t>(options.entries), 0);
  const auto pick = [&](int most) {
    return 1 + std::min(most - 1, static_cast<int>(draw.uniform(0, 1) * static_cast<float>(most)));
  };
  for (bool running = true; running;) {
    running = false;
    for (int e = 0; e < options.entries; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const int left = tokens - done[at];
      if (left == 0) {
        windows.base[static_cast<std::size_t>(windows.row[at])] = -1;
        windows.tokens[at] = windows.accepted[at] = 1;
        continue;
      }
      running = true;
      // Now and then the whole window, and all of it accepted.
      const bool whole = draw.uniform(0, 1) < 0.4f;
      windows.tokens[at] = whole ? options.window : pick(options.window);
      windows.accepted[at] = std::min(left, whole ? options.window : pick(windows.tokens[at]));
      if (split.chunks) windows.tokens[at] = windows.accepted[at];
      for (int i = 0; i < options.window; ++i) {
        const int token = e * options.window + i;
        if (i < windows.accepted[at]) {
          copy_token(all, e * tokens + done[at] + i, windows, token);
        } else {
          spoil_token(windows, token);
        }
      }
    }
    if (!running) break;
    std::fill(windows.out.begin(), windows.out.end(), 0xff);
    split.run(windows);
    for (int e = 0; e < options.entries; ++e) {
      const auto at = static_cast<std::size_t>(e);
      if (done[at] == tokens) {  // by now a null row
        for (int v = 0; v < windows.hv() * kValueDim; ++v) {
          if (windows.out_value(e * options.window, 0, v) != 0.0f) {
            return fmt::format("entry {}: a null row's output is not zero", e);
          }
        }
        continue;
      }
      for (int i = 0; i < windows.accepted[at]; ++i) {
        const auto token = static_cast<std::size_t>(e * options.window + i);
        if (std::memcmp(windows.out.data() + token * out_bytes,
                        outputs[static_cast<std::size_t>(done[at] + i)].data() + at * out_bytes,
                        out_bytes) != 0) {
          const auto row = static_cast<std::size_t>(windows.row[at]);
          return fmt::format("entry {} token {}, number {} of a window of {} with {} pending", e,
                             done[at] + i, i, windows.tokens[at],
                             windows.committed[row] - windows.checkpoint[row]);
        }
      }
      const auto none =
          windows.out.begin() +
          static_cast<std::ptrdiff_t>(
              static_cast<std::size_t>(e * options.window + windows.tokens[at]) * out_bytes);
      const auto next =
          windows.out.begin() + static_cast<std::ptrdiff_t>(
                                    static_cast<std::size_t>((e + 1) * options.window) * out_bytes);
      if (std::any_of(none, next, [](unsigned char byte) { return byte != 0xff; })) {
        return fmt::format("entry {}: outputs behind its {} tokens are written", e,
                           windows.tokens[at]);
      }
      done[at] += windows.accepted[at];
    }
    advance_image(windows, split.chunks);
    // At the end: what both still hold.
    for (int e = 0; e < options.entries; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const auto row = static_cast<std::size_t>(windows.row[at]);
      if (done[at] != tokens || windows.base[row] < 0) continue;
      if (windows.committed[row] != steps.committed[row]) return "committed lengths differ";
      if (windows.checkpoint[row] == steps.checkpoint[row] && windows.checkpoint[row] > 0) {
        const std::size_t size = options.heads.state_elements() * all.element();
        if (std::memcmp(
                windows.states.data() +
                    windows.state_at(windows.base[row], 0, 0, 0) * all.element(),
                steps.states.data() + steps.state_at(steps.base[row], 0, 0, 0) * all.element(),
                size) != 0) {
          return fmt::format("the checkpoint of entry {} differs", e);
        }
      }
      for (int p = std::max(windows.checkpoint[row], steps.checkpoint[row]);
           p < windows.committed[row]; ++p) {
        for (int head = 0; head < options.heads.value_heads; ++head) {
          const std::size_t record = windows.value_record(windows.row[at], head, p);
          const std::size_t step_record = steps.value_record(steps.row[at], head, p);
          const auto width = static_cast<std::size_t>(all.width());
          if (std::memcmp(windows.corrections.data() + record * kValueDim * all.element(),
                          steps.corrections.data() + step_record * kValueDim * all.element(),
                          kValueDim * all.element()) != 0 ||
              std::memcmp(windows.gates.data() + record * width,
                          steps.gates.data() + step_record * width, width * sizeof(float)) != 0) {
            return fmt::format("the record of position {} of entry {} differs", p, e);
          }
        }
        for (int head = 0; head < options.heads.key_heads; ++head) {
          const std::size_t record = windows.key_record(windows.row[at], head, p);
          const std::size_t step_record = steps.key_record(steps.row[at], head, p);
          if (std::memcmp(windows.keys.data() + record * kKeyDim,
                          steps.keys.data() + step_record * kKeyDim, kKeyDim * sizeof(bf16)) != 0 ||
              windows.key_scales[record] != steps.key_scales[step_record]) {
            return fmt::format("the key of position {} of entry {} differs", p, e);
          }
        }
      }
    }
  }
  return {};
}

// The same runner for the windows and for the steps.
inline std::string compare_windows_with_steps(const ImageOptions& options, int tokens,
                                              const std::vector<int>& checkpoint,
                                              const std::vector<int>& pending,
                                              const StepRunner& run) {
  return compare_split_with_steps(options, tokens, checkpoint, pending,
                                  {false, run, run, options.ring_rows});
}

}  // namespace replayssm::cuda::test
