// The model's own draft head: it computes what its definition says, its keys and values follow from
// the committed tokens alone, and drafts of it change no text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cached_engine.h"
#include "draft_head.h"
#include "model/rope.h"
#include "spec/mtp_drafter.h"

namespace replayssm {
namespace {

const TestCheckpoint& checkpoint_with_head() {
  static const TestCheckpoint checkpoint("ratio1_float32_flat_tied");
  static const bool added = (add_draft_head(checkpoint), true);
  (void)added;
  return checkpoint;
}

EngineOptions options_with_head(int steps = 3) {
  EngineOptions options = cached_options();
  options.model_path = checkpoint_with_head().path();
  options.speculation.algorithm = SpeculativeAlgorithm::mtp;
  options.speculation.steps = steps;
  options.context_length = 320;
  return options;
}

using Vector = std::vector<double>;

// The head in float64, from the file's tensors and the definition in model/mtp_head.h.
class Definition {
 public:
  explicit Definition(const ModelConfig& config)
      : config_(config), frequencies_(rope_frequencies(config.rope)) {
    checkpoint_with_head().edit_tensors([&](EditableTensors& tensors) {
      for (const auto& [name, tensor] : tensors) {
        const auto values = values_of(tensor);
        tensors_[name] = {Vector(values.begin(), values.end()), tensor.shape.back()};
      }
    });
  }

  struct Out {
    Vector hidden;
    Vector logits;
  };

  // For the token at `position`, after those of the calls before.
  Out next(TokenId token, const float* hidden_before, int position) {
    const Tensor& embedding = tensor("model.embed_tokens.weight");
    const auto width = static_cast<std::size_t>(config_.hidden_size);
    const auto row = static_cast<std::ptrdiff_t>(token) * config_.hidden_size;
    const Vector embedded(embedding.values.begin() + row,
                          embedding.values.begin() + row + config_.hidden_size);
    Vector joined = norm(embedded, "mtp.pre_fc_norm_embedding.weight");
    const Vector h = norm({hidden_before, hidden_before + width}, "mtp.pre_fc_norm_hidden.weight");
    joined.insert(joined.end(), h.begin(), h.end());
    Vector x = product("mtp.fc.weight", joined);
    add(x, attention(norm(x, layer("input_layernorm.weight")), position));
    add(x, mlp(norm(x, layer("post_attention_layernorm.weight"))));
    Out out;
    out.hidden = norm(x, "mtp.norm.weight");
    out.logits = product("model.embed_tokens.weight", out.hidden);
    return out;
  }

 private:
  struct Tensor {
    Vector values;
    std::int64_t columns = 0;
  };

  const Tensor& tensor(const std::string& name) const { return tensors_.at(name); }
  static std::string layer(const std::string& name) { return "mtp.layers.0." + name; }

  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Vector norm(const Vector& x, const std::string& name) const {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale =
        1.0 / std::sqrt(squares / static_cast<double>(x.size()) + config_.rms_norm_eps);
    Vector y = x;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= scale * (1.0 + tensor(name).values[i]);
    return y;
  }

  Vector product(const std::string& name, const Vector& x) const {
    const Tensor& w = tensor(name);
    Vector y;
    for (std::size_t at = 0; at < w.values.size(); at += x.size()) {
      y.push_back(std::inner_product(x.begin(), x.end(),
                                     w.values.begin() + static_cast<std::ptrdiff_t>(at), 0.0));
    }
    return y;
  }

  void rotate(Vector& head, int position) const {
    const std::size_t pairs = frequencies_.size();
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = position * static_cast<double>(frequencies_[i]);
      const double a = head[i];
      const double b = head[i + pairs];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + pairs] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  // One kv head, as the checkpoint has it.
  Vector attention(const Vector& u, int position) {
    const auto dim = static_cast<std::size_t>(config_.attention.head_dim);
    Vector key =
        norm(product(layer("self_attn.k_proj.weight"), u), layer("self_attn.k_norm.weight"));
    rotate(key, position);
    keys_.push_back(std::move(key));
    values_.push_back(product(layer("self_attn.v_proj.weight"), u));
    const Vector queries_and_gates = product(layer("self_attn.q_proj.weight"), u);
    Vector attended;
    for (std::size_t head = 0; head < static_cast<std::size_t>(config_.attention.heads); ++head) {
      const auto from = queries_and_gates.begin() + static_cast<std::ptrdiff_t>(2 * head * dim);
      const auto end = from + static_cast<std::ptrdiff_t>(dim);
      Vector query = norm({from, end}, layer("self_attn.q_norm.weight"));
      rotate(query, position);
      Vector weights;
      for (const Vector& key_at : keys_) {
        weights.push_back(std::inner_product(query.begin(), query.end(), key_at.begin(), 0.0) /
                          std::sqrt(static_cast<double>(dim)));
      }
      const double top = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& weight : weights) total += weight = std::exp(weight - top);
      for (std::size_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < weights.size(); ++j) sum += weights[j] * values_[j][i];
        const double gate = *(end + static_cast<std::ptrdiff_t>(i));
        attended.push_back(sum / total / (1.0 + std::exp(-gate)));
      }
    }
    return product(layer("self_attn.o_proj.weight"), attended);
  }

  Vector mlp(const Vector& u) const {
    Vector gate = product(layer("mlp.gate_proj.weight"), u);
    const Vector up = product(layer("mlp.up_proj.weight"), u);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
    return product(layer("mlp.down_proj.weight"), gate);
  }

  ModelConfig config_;
  std::vector<float> frequencies_;
  std::map<std::string, Tensor> tensors_;
  std::vector<Vector> keys_, values_;
};

// Of fp32 sums of a few hundred terms, twice over.
constexpr double kTolerance = 2e-5;

void expect_near(std::span<const float> found, const Vector& expected, int position) {
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], kTolerance * largest) << "position " << position;
  }
}

TEST(DraftHead, ComputesItsDefinition) {
  EngineOptions options = options_with_head();
  options.deterministic = false;
  const auto engine = make_engine(options);
  ASSERT_TRUE(engine);
  // The engine's own model, whose workspace is free between steps.
  const auto prompt = random_prompt(*engine, 40, 1);
  Definition definition(engine->config());
  const auto width = static_cast<std::size_t>(engine->config().hidden_size);
  const auto vocab = static_cast<std::size_t>(engine->config().vocab_rows);
  std::vector<float> hidden(prompt.size() * width);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    hidden[i] = static_cast<float>(uniform_at(9, i) - 0.5);
  }
  const std::vector<float> before = hidden;
  Sequence sequence = engine->admit(prompt, greedy()).value();
  ASSERT_TRUE(engine->memory().prepare(sequence.memory, 40, Phase::prefill).ok());
  const KvView kv = engine->memory().pages().kv(engine->memory().layout().attention_layers);
  // From position 1 on, in rows of 20, 1 and 18 tokens; position 0 holds poison.
  std::vector<float> logits(vocab);
  int first = 1;
  for (const int count : {20, 1, 18}) {
    const auto at = static_cast<std::size_t>(first);
    const auto tokens = static_cast<std::size_t>(count);
    const DraftRow row{Depth{first}, 0, count, sequence.memory.pages(), true};
    // The hidden state before the token at p is the p-th.
    const std::span<float> states(hidden.data() + at * width, tokens * width);
    ASSERT_TRUE(engine->draft_head()
                    ->draft(std::span(prompt).subspan(at, tokens), {&row, 1}, kv, states, logits)
                    .ok());
    for (int i = 0; i < count; ++i) {
      const auto p = at + static_cast<std::size_t>(i);
      const auto expected = definition.next(prompt[p], before.data() + p * width, first + i);
      expect_near({hidden.data() + p * width, width}, expected.hidden, first + i);
      if (i + 1 == count) expect_near(logits, expected.logits, first + i);
    }
    first += count;
  }
}

TEST(DraftHead, ACheckpointWithoutOneIsRefusedByName) {
  EngineOptions options = options_with_head();
  options.model_path = small_checkpoint();
  const auto engine = Engine::create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message,
            "--speculative-algorithm: EAGLE is not accepted; expected a checkpoint with mtp.* "
            "tensors, or NGRAM");
}

TEST(DraftHead, OneThatIsNotBuiltIsRefusedByName) {
  const auto refused = [](const char* field, const nlohmann::json& value) {
    const TestCheckpoint checkpoint("ratio1_float32_flat_tied");
    add_draft_head(checkpoint);
    checkpoint.edit_config([&](nlohmann::json& config) { config[field] = value; });
    EngineOptions options = options_with_head();
    options.model_path = checkpoint.path();
    const auto engine = Engine::create(options);
    return engine.ok() ? std::string("accepted") : engine.error().message;
  };
  EXPECT_EQ(refused("mtp_num_hidden_layers", 2),
            "--speculative-algorithm: EAGLE is not accepted; expected NGRAM, or a draft head of "
            "one layer: mtp_num_hidden_layers is 2");
  EXPECT_EQ(refused("mtp_use_dedicated_embeddings", true),
            "--speculative-algorithm: EAGLE is not accepted; expected NGRAM, or a draft head with "
            "mtp_use_dedicated_embeddings false");
  EXPECT_EQ(refused("mtp_num_hidden_layers", 1), "accepted");

  EngineOptions options = options_with_head();
  options.model_path = small_checkpoint("kimi_bfloat16_untied");
  options.load_format = LoadFormat::dummy;
  const auto engine = Engine::create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message,
            "--speculative-algorithm: EAGLE is not accepted; expected NGRAM, or a model with "
            "attention heads: the draft head is an attention layer");
}

// The head's attention layer is then the only one.
TEST(DraftHead, ItDraftsForADecoderWithoutAttentionLayers) {
  const TestCheckpoint checkpoint("ratio1_float32_flat_tied");
  checkpoint.edit_config([](nlohmann::json& config) { config["full_attention_interval"] = 1024; });
  EngineOptions options = options_with_head();
  options.model_path = checkpoint.path();
  options.load_format = LoadFormat::dummy;
  const auto drafted = make_engine(options);
  ASSERT_TRUE(drafted);
  ASSERT_EQ(drafted->config().count(LayerKind::attention), 0);
  const auto prompt = random_prompt(*drafted, 40, 1);
  Scheduler scheduler(*drafted);
  ASSERT_TRUE(scheduler.submit({prompt, greedy(), 30, true}).ok());
  const auto finished = run_all(scheduler);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_GT(finished.front().counters.drafts, 0);
  options.speculation = {};
  EXPECT_EQ(finished.front().output, solo(options, prompt, 30));
}

}  // namespace
}  // namespace replayssm
