// The shapes, types and sizes that exactness is tested for, and runs of one sequence.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ops/layer_memory.h"

namespace replayssm::tests {

struct Variant {
  std::string name;
  HeadShape shape;
  StorageTypes types;
  int block = 16;
  int window = 8;
  Backend backend = cpu_backend();
};

inline std::ostream& operator<<(std::ostream& to, const Variant& v) { return to << v.name; }

inline std::vector<Variant> variants() {
  const StorageTypes f32;
  const StorageTypes bf16_keys{DType::f32, DType::bf16, DType::f32};
  const StorageTypes bf16_all{DType::bf16, DType::bf16, DType::bf16};
  const HeadShape gdn{GateKind::gdn, 2, 6};
  const HeadShape kda{GateKind::kda, 2, 2};
  return {{"gdn_f32", gdn, f32, 16, 16},
          {"gdn_f32_block8", gdn, f32, 8, 8},
          {"gdn_f32_block32", gdn, f32, 32, 16},
          {"gdn_bf16_keys", gdn, bf16_keys, 16, 4},
          {"gdn_bf16", gdn, bf16_all, 16, 8},
          {"gdn_bf16_block8", gdn, bf16_all, 8, 5},
          {"kda_f32", kda, f32, 16, 8},
          {"kda_bf16", kda, bf16_all, 8, 8},
          {"gdn_f32_apart", gdn, f32, 8, 8, cpu_apart_backend()}};
}

// The same for the CUDA backend, in the formats and windows that it has.
inline std::vector<Variant> cuda_variants() {
  const StorageTypes f32{DType::f32, DType::bf16, DType::f32};
  const StorageTypes bf16_all{DType::bf16, DType::bf16, DType::bf16};
  const HeadShape gdn{GateKind::gdn, 2, 6};
  const HeadShape kda{GateKind::kda, 2, 2};
  std::vector<Variant> all;
  for (const HeadShape& shape : {gdn, kda}) {
    for (const StorageTypes& types : {f32, bf16_all}) {
      for (const auto& [block, window] :
           {std::pair{8, 1}, {16, 1}, {32, 1}, {8, 5}, {16, 4}, {16, 8}, {16, 16}, {32, 16}}) {
        all.push_back(
            {fmt::format("cuda_{}_{}_block{}_window{}", shape.gate == GateKind::gdn ? "gdn" : "kda",
                         types.state == DType::f32 ? "f32" : "bf16", block, window),
             shape, types, block, window, cuda_backend()});
      }
    }
  }
  return all;
}

inline std::vector<Variant> all_variants() {
  std::vector<Variant> all = variants();
  for (Variant& v : cuda_variants()) all.push_back(std::move(v));
  return all;
}

// A step of a split: so many tokens as a window or as a chunk.
struct Span {
  Route route;
  int count;
};

// What a sequence leaves behind: its outputs, and where it stands at the end.
struct Trace {
  std::vector<float> outputs;
  PausedSequence end;
};

inline Trace run_alone(LayerMemory& memory, const Tokens& tokens, const std::vector<Span>& split) {
  Trace trace;
  memory.admit(0, 0);
  std::size_t turn = 0;
  for (int done = 0; done < tokens.count;) {
    const Span& piece = split[turn++ % split.size()];
    const int count = std::min(piece.count, tokens.count - done);
    const auto out = run_step(memory, piece.route, {{0, &tokens, done, count}});
    trace.outputs.insert(trace.outputs.end(), out[0].begin(), out[0].end());
    done += count;
  }
  trace.end = memory.take(0);
  return trace;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

inline bool same_bits(const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return same_bits(x, y); });
}

}  // namespace replayssm::tests
