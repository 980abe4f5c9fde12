// Block drafters compute what their definition says, and rows predict what the class of the file
// says they do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "block_draft_definition.h"
#include "block_drafter.h"
#include "cache/page_pool.h"
#include "core/random_stream.h"
#include "small_engine.h"
#include "spec/block_drafter.h"

namespace replayssm {
namespace {

using Vector = BlockDraftDefinition::Vector;

// Of fp32 sums of a few hundred terms, through two layers.
constexpr double kTolerance = 3e-5;

template <class Found>
void expect_near(const Found& found, const Vector& expected, const std::string& what) {
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], kTolerance * std::max(1.0, largest)) << what << ", " << i;
  }
}

// A drafter on pages of its own, beside the small checkpoint.
struct Bench {
  explicit Bench(const TestDrafter& files, bool sampled = false) : pool(2) {
    options.max_step_tokens = 64;
    ops = make_cpu_ops(pool);
    target = Model::load(small_checkpoint(), options, pool, *ops).value();
    config = load_block_draft_config(files.path(), target->config()).value();
    SequenceLayout layout;
    layout.draft = {config.decoder.layer_count(), config.decoder.attention.kv_heads,
                    config.decoder.attention.head_dim, 0};
    pages = std::make_unique<PagePool>(layout, 8, host_space(), Poison::on);
    for (int i = 0; i < 8; ++i) ids.push_back(pages->allocate().value());
    for (int i = 0; i < config.decoder.layer_count(); ++i) kv.push_back(pages->kv(i));
    drafter = std::make_unique<BlockDrafter>(
        config, load_block_draft_weights(files.path(), config).value(), *target, options, pool,
        *ops, kv, BlockDrafter::Sizes{config.drafts(), 64, 4}, sampled);
  }

  // Drafts after `tokens`, whose pages are `pages`; the last token is the anchor.
  std::vector<Draft> propose(std::vector<TokenId> tokens, std::span<const PageId> of, int most,
                             double temperature = 0) {
    SamplingParams params;
    params.temperature = temperature;
    DraftRequest request{{tokens, of, nullptr}, most, &params, 3, {}};
    EXPECT_TRUE(drafter->propose({&request, 1}).ok());
    return request.drafts;
  }

  ThreadPool pool;
  ModelOptions options;
  std::unique_ptr<LinearOps> ops;
  std::unique_ptr<Model> target;
  BlockDraftConfig config;
  std::unique_ptr<PagePool> pages;
  std::vector<PageId> ids;
  std::vector<KvView> kv;
  std::unique_ptr<BlockDrafter> drafter;
};

Vector embedding_of_the_small_checkpoint() {
  Vector embedding;
  const TestCheckpoint checkpoint("ratio1_float32_flat_tied");
  checkpoint.edit_tensors([&](EditableTensors& tensors) {
    const auto values = values_of(tensors.at("model.embed_tokens.weight"));
    embedding.assign(values.begin(), values.end());
  });
  return embedding;
}

class BlockDraft : public ::testing::TestWithParam<DrafterKind> {};

// Two sequences of different length in one batch, their context in several steps.
TEST_P(BlockDraft, ComputesItsDefinition) {
  const DrafterKind& kind = GetParam();
  const TestDrafter files(kind);
  const Vector embedding = embedding_of_the_small_checkpoint();
  Bench bench(files);
  const std::size_t width = static_cast<std::size_t>(bench.config.features()) * 64;
  const int lengths[] = {23, 9};
  const std::span<const PageId> pages[] = {std::span(bench.ids).first(4),
                                           std::span(bench.ids).subspan(4)};
  std::vector<BlockDraftDefinition> definitions(
      2, BlockDraftDefinition(kind, drafter_tensors(kind), embedding));
  std::vector<std::vector<float>> features(2);
  std::vector<std::vector<TokenId>> tokens(2);
  for (std::size_t s = 0; s < 2; ++s) {
    for (int p = 0; p < lengths[s]; ++p) {
      Vector row;
      for (std::size_t i = 0; i < width; ++i) {
        const auto at = static_cast<std::uint64_t>(p) * width + i;
        features[s].push_back(static_cast<float>(2 * uniform_at(7 + s, at) - 1));
        row.push_back(features[s].back());
      }
      definitions[s].add_context(row);
      tokens[s].push_back(p);
    }
    tokens[s].push_back(static_cast<TokenId>(41 + s));  // the anchor
  }
  for (const auto& [first, count] : {std::pair(0, 6), {6, 1}, {7, 2}, {9, 14}}) {
    std::vector<CommittedTokens> rows;
    for (std::size_t s = 0; s < 2; ++s) {
      if (first + count > lengths[s]) continue;
      rows.push_back({{tokens[s], pages[s], nullptr},
                      first,
                      count,
                      features[s].data() + static_cast<std::size_t>(first) * width});
    }
    ASSERT_TRUE(bench.drafter->observe(rows).ok());
  }

  // Logits of each row.
  const auto drafts = static_cast<std::size_t>(bench.config.drafts());
  const BlockDraftWeights weights = load_block_draft_weights(files.path(), bench.config).value();
  BlockDraftModel model(bench.config, weights, *bench.target, bench.options, bench.pool,
                        *bench.ops);
  std::vector<float> hidden(2 * drafts * 64);
  std::vector<float> logits(2 * drafts * 512);
  const BlockRow blocks[] = {{tokens[0].back(), Depth{lengths[0]}, pages[0]},
                             {tokens[1].back(), Depth{lengths[1]}, pages[1]}};
  ASSERT_TRUE(model.run_blocks(blocks, bench.kv, hidden, logits).ok());
  Bench sampled(files, true);
  sampled.drafter = std::make_unique<BlockDrafter>(
      bench.config, load_block_draft_weights(files.path(), bench.config).value(), *bench.target,
      bench.options, bench.pool, *bench.ops, bench.kv,
      BlockDrafter::Sizes{bench.config.drafts(), 64, 4}, true);
  for (std::size_t s = 0; s < 2; ++s) {
    const auto block = definitions[s].run(tokens[s].back());
    ASSERT_EQ(block.logits.size(), drafts);
    for (std::size_t k = 0; k < drafts; ++k) {
      const std::string what = "sequence " + std::to_string(s) + ", draft " + std::to_string(k);
      expect_near(std::span(hidden).subspan((s * drafts + k) * 64, 64), block.hidden[k], what);
      expect_near(std::span(logits).subspan((s * drafts + k) * 512, 512), block.logits[k], what);
    }
    // Drafts, confidences and what drafts are drawn from.
    const auto expected = definitions[s].choose(block, tokens[s].back());
    const auto found = bench.propose(tokens[s], pages[s], bench.config.drafts());
    ASSERT_EQ(found.size(), drafts);
    for (std::size_t k = 0; k < drafts; ++k) {
      EXPECT_EQ(found[k].token, expected.tokens[k]) << k;
      EXPECT_TRUE(found[k].distribution.entries.empty());
      if (kind.confidence) {
        EXPECT_NEAR(found[k].confidence, expected.confidences[k], kTolerance);
      }
    }
    // So hot that every part of the scores counts.
    constexpr double kTemperature = 10;
    const auto drawn = sampled.propose(tokens[s], pages[s], bench.config.drafts(), kTemperature);
    ASSERT_EQ(drawn.size(), drafts);
    std::vector<TokenId> path;
    for (const Draft& draft : drawn) path.push_back(draft.token);
    const auto along = definitions[s].choose(block, tokens[s].back(), path);
    for (std::size_t k = 0; k < drafts; ++k) {
      const TokenDistribution& q = drawn[k].distribution;
      ASSERT_EQ(q.entries.size(), kind.dflash2 ? 5u : 64u);
      Vector expected_weights;
      for (const auto& entry : q.entries) {
        const double score = along.scores[k][static_cast<std::size_t>(entry.token)];
        expected_weights.push_back(std::exp(score / kTemperature));
      }
      const double total = std::accumulate(expected_weights.begin(), expected_weights.end(), 0.0);
      for (std::size_t i = 0; i < expected_weights.size(); ++i) {
        EXPECT_NEAR(q.entries[i].weight / q.total, expected_weights[i] / total, kTolerance) << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BlockDraft, ::testing::ValuesIn(kDrafterKinds),
                         [](const auto& each) { return std::string(each.param.name); });

// Each draft's confidence is brought to what is accepted by a temperature of its place.
TEST(BlockDraftConfidence, TemperaturesApplyByPlace) {
  const TestDrafter plain_files(kDSparkVanilla);
  const TestDrafter files(kDSparkVanilla);
  const std::vector<double> temperatures{0.5, 1, 2, 3, 4, 5, 6};
  files.files().edit_config(
      [&](nlohmann::json& config) { config["confidence_temperatures"] = temperatures; });
  std::vector<std::vector<Draft>> found;
  for (const TestDrafter* each : {&plain_files, &files}) {
    Bench bench(*each);
    const std::vector<float> features(static_cast<std::size_t>(bench.config.features()) * 64, 0.5F);
    const std::vector<TokenId> tokens{1, 2};
    const CommittedTokens context{{tokens, bench.ids, nullptr}, 0, 1, features.data()};
    ASSERT_TRUE(bench.drafter->observe({&context, 1}).ok());
    found.push_back(bench.propose(tokens, bench.ids, 7));
  }
  for (std::size_t k = 0; k < temperatures.size(); ++k) {
    const double c = found[0][k].confidence;
    const double logit = std::log(c / (1 - c));
    EXPECT_NEAR(found[1][k].confidence, 1 / (1 + std::exp(-logit / temperatures[k])), 1e-12);
  }
}

// Layers that add nothing: what a row predicts is then made of its own token alone, so that the
// anchor's row and a mask's can be told apart.
TEST(BlockDraftSlots, TheClassOfTheFileDecidesWhichRowsPredict) {
  struct Row {
    const char* name;
    DrafterKind kind;
    std::function<void(nlohmann::json&)> edit;
    bool anchor_drafts;
    int drafts;
  };
  const auto as_is = [](nlohmann::json&) {};
  const auto specforge = [](nlohmann::json& config) {
    config["architectures"] = {"DSparkDraftModel"};
    config["dflash_config"]["projector_type"] = "dspark";
  };
  const auto speculators = [](const char* type, std::optional<bool> from_anchor) {
    return [=](nlohmann::json& config) {
      config.erase("architectures");
      config["speculators_model_type"] = type;
      if (from_anchor) config["sample_from_anchor"] = *from_anchor;
    };
  };
  const Row rows[] = {
      {"DFlash", kDFlash, as_is, false, 7},
      {"DFlash2", kDFlash2, as_is, false, 7},
      {"DSpark", kDSparkVanilla, as_is, true, 7},
      {"DSpark without heads", kDSparkPlain, as_is, true, 7},
      {"SpecForge", kDFlash, specforge, true, 8},
      {"speculators dflash", kDFlash, speculators("dflash", {}), false, 7},
      {"speculators dspark", kDFlash, speculators("dspark", {}), true, 8},
      {"speculators dflash from anchor", kDFlash, speculators("dflash", true), true, 8},
      {"speculators dspark not from anchor", kDFlash, speculators("dspark", false), false, 7}};
  const Vector embedding = embedding_of_the_small_checkpoint();
  // The likeliest token where the last hidden state is the token's embedding: the head is tied.
  const auto echo = [&](TokenId token) {
    const auto row = [&](std::size_t t) { return embedding.begin() + static_cast<long>(t * 64); };
    std::vector<double> scores;
    for (std::size_t t = 0; t < 512; ++t) {
      const auto own = row(static_cast<std::size_t>(token));
      scores.push_back(std::inner_product(own, own + 64, row(t), 0.0));
    }
    return static_cast<TokenId>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  };
  constexpr TokenId kAnchor = 123;
  constexpr TokenId kMask = 500;
  ASSERT_NE(echo(kAnchor), echo(kMask));
  for (const Row& row : rows) {
    const TestDrafter files(row.kind);
    files.files().edit_config(row.edit);
    files.files().edit_tensors([](EditableTensors& tensors) {
      for (auto& [name, tensor] : tensors) {
        std::vector<float> values = values_of(tensor);
        const bool silent = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
                            name.starts_with("markov_head") ||
                            name.starts_with("candidate_selector");
        if (silent) std::fill(values.begin(), values.end(), 0.0F);
        if (name == "norm.weight") std::fill(values.begin(), values.end(), 1.0F);
        set_values(tensor, values);
      }
    });
    Bench bench(files);
    const std::vector<float> features(static_cast<std::size_t>(bench.config.features()) * 64, 0.5F);
    const std::vector<TokenId> tokens{1, kAnchor};
    const CommittedTokens context{{tokens, bench.ids, nullptr}, 0, 1, features.data()};
    ASSERT_TRUE(bench.drafter->observe({&context, 1}).ok());
    const auto found = bench.propose(tokens, bench.ids, 16);
    ASSERT_EQ(static_cast<int>(found.size()), row.drafts) << row.name;
    EXPECT_EQ(found[0].token, echo(row.anchor_drafts ? kAnchor : kMask)) << row.name;
    for (std::size_t k = 1; k < found.size(); ++k) {
      EXPECT_EQ(found[k].token, echo(kMask)) << row.name << ", draft " << k;
    }
  }
}

}  // namespace
}  // namespace replayssm
