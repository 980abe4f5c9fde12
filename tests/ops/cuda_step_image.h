// A batch of one linear layer in host memory: everything a CUDA operation reads and writes, so that
// a run can be compared byte for byte with another and number for number with float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/bfloat16.h"
#include "core/dtype.h"
#include "ops/cuda/step_args.h"
#include "ops/cuda/step_plan.h"
#include "ops/shape.h"

namespace replayssm::cuda::test {

struct ImageOptions {
  HeadShape heads;
  DType state = DType::f32;
  int fold_block = 16;
  int ring_rows = 32;
  int entries = 1;
  std::uint64_t seed = 1;
  bool null_rows = false;        // every third entry
  bool shared_base = false;      // odd entries fold into another slot than they read
  bool projected_gates = false;  // gates and betas from their projections
  float lower_bound = 0;         // of a projected KDA gate; 0: the unbounded kind
  std::int64_t slot_gap = 0;     // unused elements between slots, a multiple of 8
  bool settled = false;          // states and records may be fetched early
  int window = 1;                // most tokens of an entry; entry e's begin at token e * window
};

// Bytes are 0xff (NaN) wherever the operation has no business.
struct Image {
  ImageOptions o;
  int rows = 0, slots = 0;
  std::int64_t slot_stride = 0, token_stride = 0;
  std::vector<unsigned char> states, corrections, out;
  std::vector<bf16> keys, qkv;
  std::vector<float> key_scales, gates, gate, beta, a_log, dt_bias;
  std::vector<int> row, committed, checkpoint, base, home, accepted;
  std::vector<int> first_token, tokens;  // [entries]

  std::size_t element() const { return size_of(o.state); }
  int hv() const { return o.heads.value_heads; }
  int width() const { return o.heads.gate_width(); }

  double load(const std::vector<unsigned char>& from, std::size_t i) const {
    if (o.state == DType::bf16) {
      bf16 x;
      std::memcpy(&x, from.data() + 2 * i, 2);
      return to_float(x);
    }
    float x;
    std::memcpy(&x, from.data() + 4 * i, 4);
    return x;
  }
  void store(std::vector<unsigned char>& to, std::size_t i, float x) const {
    if (o.state == DType::bf16) {
      const bf16 b = to_bf16(x);
      std::memcpy(to.data() + 2 * i, &b, 2);
    } else {
      std::memcpy(to.data() + 4 * i, &x, 4);
    }
  }
  std::size_t state_at(int slot, int head, int v, int k) const {
    return static_cast<std::size_t>(slot) * static_cast<std::size_t>(slot_stride) +
           (static_cast<std::size_t>(head) * kValueDim + static_cast<std::size_t>(v)) * kKeyDim +
           static_cast<std::size_t>(k);
  }
  std::size_t value_record(int r, int head, int position) const {
    return (static_cast<std::size_t>(r) * static_cast<std::size_t>(hv()) +
            static_cast<std::size_t>(head)) *
               static_cast<std::size_t>(o.ring_rows) +
           static_cast<std::size_t>(position & (o.ring_rows - 1));
  }
  std::size_t key_record(int r, int key_head, int position) const {
    return (static_cast<std::size_t>(r) * static_cast<std::size_t>(o.heads.key_heads) +
            static_cast<std::size_t>(key_head)) *
               static_cast<std::size_t>(o.ring_rows) +
           static_cast<std::size_t>(position & (o.ring_rows - 1));
  }
  std::size_t q_at(int token, int key_head) const {
    return static_cast<std::size_t>(token) * static_cast<std::size_t>(token_stride) +
           static_cast<std::size_t>(key_head) * kKeyDim;
  }
  std::size_t k_at(int token, int key_head) const {
    return q_at(token, key_head) + static_cast<std::size_t>(o.heads.key_heads) * kKeyDim;
  }
  std::size_t v_at(int token, int head) const {
    return static_cast<std::size_t>(token) * static_cast<std::size_t>(token_stride) +
           (2 * static_cast<std::size_t>(o.heads.key_heads) + static_cast<std::size_t>(head)) * 128;
  }
  float out_value(int token, int head, int v) const {
    float x;
    std::memcpy(
        &x,
        out.data() + 4 * ((static_cast<std::size_t>(token) * static_cast<std::size_t>(hv()) +
                           static_cast<std::size_t>(head)) *
                              kValueDim +
                          static_cast<std::size_t>(v)),
        4);
    return x;
  }
  StepGeometry geometry() const {
    return {o.heads, o.state, o.fold_block, o.ring_rows, o.entries, o.window};
  }
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24f;
  }
  // Between low and high, bf16.
  bf16 activation() { return to_bf16(uniform(-1.0f, 1.0f)); }

 private:
  std::mt19937_64 engine_;
};

inline float normalised_scale(const bf16* k) {
  double sum = 1e-6;
  for (int i = 0; i < kKeyDim; ++i) sum += static_cast<double>(to_float(k[i])) * to_float(k[i]);
  return static_cast<float>(1.0 / std::sqrt(sum));
}

// A token's inputs, new for every seed. Now and then a gate of -80 and a key of zeros.
inline void draw_inputs(Image& m, std::uint64_t seed) {
  Draw draw(seed * 7919 + 17);
  for (bf16& x : m.qkv) x = draw.activation();
  for (int token = 0; token < m.o.entries * m.o.window; ++token) {
    if (draw.uniform(0, 1) < 0.05f) {
      for (int i = 0; i < kKeyDim; ++i)
        m.qkv[m.k_at(token, 0) + static_cast<std::size_t>(i)] = bf16{0};
    }
  }
  for (float& g : m.gate) {
    g = m.o.projected_gates ? draw.uniform(-4, 4)
                            : (draw.uniform(0, 1) < 0.01f ? -80.0f : draw.uniform(-0.3f, -0.001f));
  }
  for (float& b : m.beta) b = m.o.projected_gates ? draw.uniform(-3, 3) : draw.uniform(0.1f, 0.9f);
}

// Rows at checkpoint depths and pending counts of the caller's choice; entry e uses row (e * 5 + 2)
// mod rows and slots far from each other.
inline Image make_image(const ImageOptions& o, const std::vector<int>& checkpoint,
                        const std::vector<int>& pending) {
  Image m;
  m.o = o;
  const auto entries = static_cast<std::size_t>(o.entries);
  const auto hv = static_cast<std::size_t>(o.heads.value_heads);
  const auto h = static_cast<std::size_t>(o.heads.key_heads);
  const auto ring = static_cast<std::size_t>(o.ring_rows);
  const auto width = static_cast<std::size_t>(o.heads.gate_width());
  m.rows = o.entries * 5 + 3;
  m.slots = 2 * o.entries + 1;
  m.slot_stride = static_cast<std::int64_t>(o.heads.state_elements()) + o.slot_gap;
  m.token_stride = o.heads.channels() + 8;
  const auto rows = static_cast<std::size_t>(m.rows);
  m.states.assign(
      static_cast<std::size_t>(m.slots) * static_cast<std::size_t>(m.slot_stride) * m.element(),
      0xff);
  m.corrections.assign(rows * hv * ring * kValueDim * m.element(), 0xff);
  const std::size_t tokens = entries * static_cast<std::size_t>(o.window);
  m.out.assign(tokens * hv * kValueDim * 4, 0xff);
  m.keys.assign(rows * h * ring * kKeyDim, bf16{0xffff});
  m.key_scales.assign(rows * h * ring, std::nanf(""));
  m.gates.assign(rows * hv * ring * width, std::nanf(""));
  m.qkv.resize(tokens * static_cast<std::size_t>(m.token_stride));
  m.gate.resize(tokens * hv * width);
  m.beta.resize(tokens * hv);
  m.committed.assign(rows, 1 << 20);
  m.checkpoint.assign(rows, 1 << 20);
  m.base.assign(rows, -1);
  m.home.assign(rows, -1);
  draw_inputs(m, o.seed);
  Draw draw(o.seed);
  if (o.projected_gates) {
    for (std::size_t i = 0; i < hv; ++i) m.a_log.push_back(draw.uniform(-2, 0.5f));
    for (std::size_t i = 0; i < hv * width; ++i) m.dt_bias.push_back(draw.uniform(-1, 1));
  }
  for (int e = 0; e < o.entries; ++e) {
    const int r = (e * 5 + 2) % m.rows;
    m.row.push_back(r);
    m.accepted.push_back(1);
    m.first_token.push_back(e * o.window);
    m.tokens.push_back(o.window);
    const auto at = static_cast<std::size_t>(r);
    if (o.null_rows && e % 3 == 1) continue;
    m.checkpoint[at] = checkpoint[static_cast<std::size_t>(e) % checkpoint.size()];
    m.committed[at] = m.checkpoint[at] + pending[static_cast<std::size_t>(e) % pending.size()];
    m.base[at] = m.slots - 1 - e;
    m.home[at] = o.shared_base && e % 2 == 1 ? e : m.base[at];
    for (int head = 0; head < o.heads.value_heads; ++head) {
      if (m.checkpoint[at] > 0) {
        for (int i = 0; i < kValueDim * kKeyDim; ++i) {
          m.store(m.states, m.state_at(m.base[at], head, 0, 0) + static_cast<std::size_t>(i),
                  draw.uniform(-0.1f, 0.1f));
        }
      }
      for (int p = m.checkpoint[at]; p < m.committed[at]; ++p) {
        const std::size_t record = m.value_record(r, head, p);
        for (std::size_t v = 0; v < kValueDim; ++v) {
          m.store(m.corrections, record * kValueDim + v, draw.uniform(-1, 1));
        }
        for (std::size_t i = 0; i < width; ++i) {
          m.gates[record * width + i] = std::exp(draw.uniform(-0.3f, -0.001f));
        }
      }
    }
    for (int head = 0; head < o.heads.key_heads; ++head) {
      for (int p = m.checkpoint[at]; p < m.committed[at]; ++p) {
        const std::size_t record = m.key_record(r, head, p);
        for (std::size_t i = 0; i < kKeyDim; ++i) m.keys[record * kKeyDim + i] = draw.activation();
        m.key_scales[record] = normalised_scale(m.keys.data() + record * kKeyDim);
      }
    }
  }
  return m;
}

}  // namespace replayssm::cuda::test
