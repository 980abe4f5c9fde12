// A block drafter in float64, from its file's tensors and fields: plain loops after the definition
// of DFlash, DFlash2 and DSpark.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "block_drafter.h"
#include "core/strong_id.h"

namespace replayssm {

class BlockDraftDefinition {
 public:
  using Vector = std::vector<double>;

  struct Drafts {
    std::vector<TokenId> tokens;
    std::vector<Vector> scores;  // over the vocabulary, what drafts are chosen by
    Vector confidences;
  };
  struct Block {
    std::vector<Vector> hidden;  // of each draft
    std::vector<Vector> logits;
  };

  BlockDraftDefinition(const DrafterKind& kind, const EditableTensors& drafter,
                       const Vector& embedding)
      : kind_(kind), config_(drafter_config(kind)), embedding_(embedding), keys_(2), values_(2) {
    for (const auto& [name, tensor] : drafter) {
      const auto values = values_of(tensor);
      tensors_[name] = Vector(values.begin(), values.end());
    }
    if (!kind.dspark) config_.update(config_["dflash_config"]);
  }

  // The next position's features become context.
  void add_context(const Vector& features) {
    const Vector c = norm(product("fc.weight", features), "hidden_norm.weight");
    for (std::size_t l = 0; l < 2; ++l) {
      keys_[l].push_back(heads(product(layer(l, "self_attn.k_proj.weight"), c),
                               layer(l, "self_attn.k_norm.weight"), positions()));
      values_[l].push_back(product(layer(l, "self_attn.v_proj.weight"), c));
    }
    ++positions_;
  }

  Block run(TokenId anchor) const {
    const int rows = config_["block_size"];
    std::vector<Vector> x;
    const double scale = config_.value("input_embedding_scale", 1.0);
    for (int k = 0; k < rows; ++k) {
      x.push_back(embed(k == 0 ? anchor : config_["mask_token_id"].get<TokenId>()));
      for (double& value : x.back()) value *= scale;
    }
    for (std::size_t l = 0; l < 2; ++l) {
      sub_layer(x, l, "input_layernorm.weight", "attention_conv.",
                [&](const std::vector<Vector>& u) { return attention(l, u); });
      sub_layer(x, l, "post_attention_layernorm.weight", "mlp_conv.",
                [&](const std::vector<Vector>& u) {
                  std::vector<Vector> out;
                  for (const Vector& row : u) out.push_back(mlp(l, row));
                  return out;
                });
    }
    Block block;
    for (std::size_t k = kind_.dspark ? 0 : 1; k < x.size(); ++k) {
      block.hidden.push_back(norm(x[k], "norm.weight"));
      block.logits.push_back(rows_times(embedding_, block.hidden.back()));
    }
    return block;
  }

  // Greedy drafts of a block; or those that are `drawn`, as far as there are any.
  Drafts choose(const Block& block, TokenId anchor, const std::vector<TokenId>& drawn = {}) const {
    Drafts drafts;
    TokenId before = anchor;
    Vector state(8, 0.0);
    for (std::size_t k = 0; k < block.logits.size(); ++k) {
      Vector z = block.logits[k];
      if (kind_.dflash2) {
        z = selected(z, block.hidden[k], before);
      } else if (kind_.markov != nullptr) {
        add(z, markov_bias(before, block.hidden[k], state));
      }
      if (kind_.confidence) {
        const Vector joined = join({block.hidden[k], markov_embedding(before)});
        drafts.confidences.push_back(sigmoid(product("confidence_head.proj.weight", joined)[0] +
                                             tensor("confidence_head.proj.bias")[0]));
      }
      before = static_cast<TokenId>(std::max_element(z.begin(), z.end()) - z.begin());
      if (k < drawn.size()) before = drawn[k];
      drafts.tokens.push_back(before);
      drafts.scores.push_back(z);
    }
    return drafts;
  }

 private:
  const Vector& tensor(const std::string& name) const { return tensors_.at(name); }
  static std::string layer(std::size_t l, const std::string& name) {
    return "layers." + std::to_string(l) + "." + name;
  }
  int positions() const { return positions_; }

  static double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static Vector join(const std::vector<Vector>& parts) {
    Vector all;
    for (const Vector& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  static Vector rows_times(const Vector& matrix, const Vector& x) {
    Vector y;
    for (auto row = matrix.begin(); row != matrix.end(); row += static_cast<long>(x.size())) {
      y.push_back(std::inner_product(x.begin(), x.end(), row, 0.0));
    }
    return y;
  }
  Vector product(const std::string& name, const Vector& x) const {
    return rows_times(tensor(name), x);
  }
  static Vector row_of(const Vector& matrix, TokenId row, std::size_t width) {
    const auto from = matrix.begin() + static_cast<long>(row) * static_cast<long>(width);
    return {from, from + static_cast<long>(width)};
  }
  Vector embed(TokenId token) const { return row_of(embedding_, token, 64); }

  static Vector softmax(const Vector& z) {
    const double top = *std::max_element(z.begin(), z.end());
    Vector p;
    double total = 0;
    for (const double x : z) total += p.emplace_back(std::exp(x - top));
    for (double& x : p) x /= total;
    return p;
  }

  // Scaled by w itself.
  Vector norm(const Vector& x, const std::string& name) const {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    Vector y = x;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= scale * tensor(name)[i];
    return y;
  }

  // Heads of 16, normalised, rotated as a whole at the position.
  Vector heads(const Vector& x, const std::string& scale, int position) const {
    Vector all;
    for (std::size_t at = 0; at < x.size(); at += 16) {
      const auto from = x.begin() + static_cast<long>(at);
      Vector head = norm({from, from + 16}, scale);
      for (std::size_t i = 0; i < 8; ++i) {
        const double angle = position * std::pow(50000.0, -2.0 * static_cast<double>(i) / 16.0);
        const double a = head[i];
        const double b = head[i + 8];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + 8] = b * std::cos(angle) + a * std::sin(angle);
      }
      all.insert(all.end(), head.begin(), head.end());
    }
    return all;
  }

  template <class F>
  void sub_layer(std::vector<Vector>& x, std::size_t l, const std::string& norm_name,
                 const std::string& conv, F&& f) const {
    std::vector<Vector> u;
    std::vector<Vector> kernels;
    for (const Vector& row : x) {
      u.push_back(norm(row, layer(l, norm_name)));
      if (kind_.dflash2) {
        kernels.push_back(product(layer(l, conv + "kernel_projection.weight"), u.back()));
      }
    }
    if (kind_.dflash2) u = convolved(u, kernels, tensor(layer(l, conv + "base_kernel")), 0);
    std::vector<Vector> y = f(u);
    if (kind_.dflash2) y = convolved(y, kernels, tensor(layer(l, conv + "base_kernel")), 1);
    for (std::size_t k = 0; k < x.size(); ++k) add(x[k], y[k]);
  }

  // Two taps, groups of 16 channels.
  static std::vector<Vector> convolved(const std::vector<Vector>& x,
                                       const std::vector<Vector>& kernels, const Vector& base,
                                       std::size_t side) {
    std::vector<Vector> y(x.size(), Vector(64, 0.0));
    for (std::size_t k = 0; k < x.size(); ++k) {
      for (std::size_t tap = 0; tap < 2 && tap <= k; ++tap) {
        for (std::size_t c = 0; c < 64; ++c) {
          const double w =
              base[(side * 2 + tap) * 64 + c] + kernels[k][(side * 2 + tap) * 4 + c / 16];
          y[k][c] += w * x[k - tap][c];
        }
      }
    }
    return y;
  }

  std::vector<Vector> attention(std::size_t l, const std::vector<Vector>& u) const {
    std::vector<Vector> keys = keys_[l];
    std::vector<Vector> values = values_[l];
    for (std::size_t k = 0; k < u.size(); ++k) {
      keys.push_back(heads(product(layer(l, "self_attn.k_proj.weight"), u[k]),
                           layer(l, "self_attn.k_norm.weight"), positions() + static_cast<int>(k)));
      values.push_back(product(layer(l, "self_attn.v_proj.weight"), u[k]));
    }
    const bool sliding = config_["layer_types"][l] == "sliding_attention";
    std::vector<Vector> out;
    for (std::size_t k = 0; k < u.size(); ++k) {
      const int position = positions() + static_cast<int>(k);
      const Vector q = heads(product(layer(l, "self_attn.q_proj.weight"), u[k]),
                             layer(l, "self_attn.q_norm.weight"), position);
      Vector attended;
      for (std::size_t head = 0; head < 4; ++head) {
        const auto kv_at = static_cast<long>(head / 2 * 16);
        Vector scores(keys.size(), -std::numeric_limits<double>::infinity());
        for (std::size_t j = 0; j < keys.size(); ++j) {
          // A window of 6 counts the row's own position.
          const int distance = position - static_cast<int>(j);
          if (sliding && (distance < 0 || distance > 5)) continue;
          const auto from = q.begin() + static_cast<long>(head * 16);
          scores[j] = std::inner_product(from, from + 16, keys[j].begin() + kv_at, 0.0) / 4.0;
        }
        const Vector weights = softmax(scores);
        for (long i = 0; i < 16; ++i) {
          double sum = 0;
          for (std::size_t j = 0; j < keys.size(); ++j) {
            sum += weights[j] * values[j][static_cast<std::size_t>(kv_at + i)];
          }
          attended.push_back(sum);
        }
      }
      out.push_back(product(layer(l, "self_attn.o_proj.weight"), attended));
    }
    return out;
  }

  Vector mlp(std::size_t l, const Vector& u) const {
    Vector gate = product(layer(l, "mlp.gate_proj.weight"), u);
    const Vector up = product(layer(l, "mlp.up_proj.weight"), u);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= sigmoid(gate[i]) * up[i];
    return product(layer(l, "mlp.down_proj.weight"), gate);
  }

  // Logits over the vocabulary, -infinity outside the 5 candidates.
  Vector selected(const Vector& logits, const Vector& hidden, TokenId before) const {
    std::vector<TokenId> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    const Vector hid = product("candidate_selector.hidden_projection.weight", hidden);
    const Vector pred = row_of(tensor("candidate_selector.predecessor_codebook"), before, 12);
    Vector z(logits.size(), -std::numeric_limits<double>::infinity());
    for (std::size_t c = 0; c < 5; ++c) {
      const auto id = static_cast<std::size_t>(order[c]);
      const Vector succ = row_of(tensor("candidate_selector.successor_codebook"), order[c], 12);
      z[id] = 2.0 * std::tanh(0.75 * logits[id] / 2.0);
      for (std::size_t r = 0; r < 12; ++r) z[id] += pred[r] * hid[r] * succ[r];
    }
    return z;
  }

  Vector markov_embedding(TokenId before) const {
    return row_of(tensor("markov_head.markov_w1.weight"), before, 8);
  }

  Vector markov_bias(TokenId before, const Vector& hidden, Vector& state) const {
    Vector e = markov_embedding(before);
    const std::string markov = kind_.markov;
    if (markov == "gated") {
      Vector gate = product("markov_head.gate_proj.weight", join({hidden, e}));
      add(gate, tensor("markov_head.gate_proj.bias"));
      for (std::size_t r = 0; r < 8; ++r) e[r] *= sigmoid(gate[r]);
    } else if (markov == "rnn") {
      Vector gates = product("markov_head.joint_proj.weight", join({state, e, hidden}));
      add(gates, tensor("markov_head.joint_proj.bias"));
      for (std::size_t r = 0; r < 8; ++r) {
        const double keep = sigmoid(gates[r]);
        state[r] = keep * state[r] + (1.0 - keep) * std::tanh(gates[8 + r]);
        e[r] = std::tanh(gates[16 + r]);
      }
    }
    return product("markov_head.markov_w2.weight", e);
  }

  DrafterKind kind_;
  nlohmann::json config_;
  Vector embedding_;
  std::map<std::string, Vector> tensors_;
  std::vector<std::vector<Vector>> keys_, values_;  // by layer, by position
  int positions_ = 0;
};

}  // namespace replayssm
