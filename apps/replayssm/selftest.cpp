// replayssm selftest: what this engine claims about its results, proven on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "core/random_stream.h"
#include "engine_flags.h"
#include "prompt_text.h"
#include "selftest_bits.h"
#include "selftest_closeness.h"
#include "selftest_speculation.h"
#include "terminal.h"
#include "text/tokenizer.h"

namespace replayssm::cli {
namespace {

// Any text will do; it is only repeated until it has enough tokens.
constexpr const char* kTexts[] = {
    "The river was low that summer, and the boys walked across it every morning on the flat stones "
    "below the mill. In the evening they came back with wet feet and a tin of small fish, and "
    "their "
    "mother asked them, as she did each day, whether they had seen anybody on the road. Nobody, "
    "they said; only the carter, who was asleep, and his dog, who was not. ",
    "Remember this list: apple 17, bridge 204, candle 9, desk 33, engine 58, forest 121. First add "
    "the numbers of apple and desk, then count from 9 to 21: 9, 10, 11, 12, 13, 14, 15, 16, 17, "
    "18, "
    "19, 20, 21. Sorted by length the words are desk, apple, bridge, candle, engine, forest. ",
    "for (int i = 0; i < count; ++i) { total += values[i] * weights[i]; } // a sum of products\n"
    "{\"name\": \"window\", \"size\": [12, 40], \"open\": true, \"tags\": [\"old\", \"green\"]}\n"
    "def fold(state, records): return [decay * s + r for s, r in zip(state, records)]\n",
    "Dear sir, I have your letter of the fourth and thank you for it. What you ask cannot be done "
    "before the new year, since the roads to the north are closed and the post goes by sea; but I "
    "have spoken with my brother, who leaves on Monday, and he will carry the papers himself. "};

// With one right answer each, so that a model that knows it does not hesitate.
constexpr const char* kQuestions[] = {
    "Count from 38 to 61.",
    "List the numbers from 112 to 97.",
    "What is 647 plus 870?",
    "Compute 79 plus 76.",
    "Remember this codeword: lantern-482. What is the codeword?",
    "Sort these words: river, candle, apple, stone, window, bridge, hedge",
    "Arrange these words in alphabetical order: stove, engine, cotton, galaxy, light, dance",
    "Dictionary:\nsandal | 06f58\nrose | 5016\nqueen | HLEHKJ\nwheel | 77a1\n\nWhat is the value "
    "of "
    "queen?",
    "Remember these colors:\ndeer = gold\nocean = red\nshelf = orange\ncabin = blue\n\nWhat is the "
    "color of shelf?",
    "Mia works as a painter. Mia was born in November. The home of Mia is Jakarta. Mia has 9 "
    "siblings. Complete the JSON object: {\"name\": \"\", \"siblings\": 0, \"birth_month\": \"\", "
    "\"job\": \"\", \"city\": \"\"}"};
constexpr std::size_t kPromptTokens = 64;

// Exactly so many tokens of each text.
Texts tokenize(const Tokenizer& tokenizer, std::size_t tokens) {
  Texts texts;
  for (const char* source : kTexts) {
    std::string text = source;
    std::vector<TokenId> ids = tokenizer.encode(text);
    while (!ids.empty() && ids.size() < tokens) {
      text += source;
      ids = tokenizer.encode(text);
    }
    ids.resize(std::min(ids.size(), tokens));
    texts.push_back(std::move(ids));
  }
  return texts;
}

// The beginnings of the texts, and questions where the checkpoint has a chat template.
std::vector<SelftestPrompt> prompts_of(const Tokenizer& tokenizer,
                                       const std::filesystem::path& directory) {
  std::vector<SelftestPrompt> prompts;
  for (auto& text : tokenize(tokenizer, kPromptTokens)) prompts.push_back({std::move(text), false});
  const auto chat_template = ChatTemplate::load(directory);
  if (!chat_template) return prompts;
  for (const char* question : kQuestions) {
    auto ids = chat_tokens(tokenizer, *chat_template, {{{"role", "user"}, {"content", question}}});
    if (ids && !ids->empty()) prompts.push_back({std::move(*ids), true});
  }
  return prompts;
}

// For checkpoints that come without a tokenizer: any ids will do.
Texts numbered_tokens(int vocab_size, std::size_t tokens) {
  Texts texts;
  for (std::uint64_t text = 0; text < std::size(kTexts); ++text) {
    std::vector<TokenId> ids;
    for (std::uint64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<TokenId>(uniform_at(text, i) * vocab_size));
    }
    texts.push_back(std::move(ids));
  }
  return texts;
}

struct Material {
  Texts texts;                          // for equal bits
  std::vector<SelftestPrompt> prompts;  // for close values
};

Result<Material> material_of(const std::filesystem::path& directory) {
  if (!std::filesystem::exists(directory / "tokenizer.json")) {
    const auto config = load_config(directory);
    if (!config) return config.error();
    Material material;
    material.texts = numbered_tokens(config->vocab_size, kBitsTokens);
    for (auto& ids : numbered_tokens(config->vocab_size, kPromptTokens)) {
      material.prompts.push_back({std::move(ids), false});
    }
    return material;
  }
  const auto tokenizer = Tokenizer::load(directory);
  if (!tokenizer) return tokenizer.error();
  Material material{tokenize(*tokenizer, kBitsTokens), prompts_of(*tokenizer, directory)};
  if (material.texts.front().size() < static_cast<std::size_t>(kBitsTokens)) {
    return Error{"tokenizer: a text of several hundred characters has no tokens"};
  }
  return material;
}

int selftest(const EngineFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const auto options = flags.options();
  if (!options) return fail(options.error());
  const auto material = material_of(options->model_path);
  if (!material) return fail(material.error());

  CheckList checks;
  fmt::print("model {}\n", options->model_path.string());
  if (const auto status = check_equal_bits(*options, material->texts, checks); !status.ok()) {
    return fail(status.error());
  }
  if (const auto status = check_speculation(*options, material->texts[0], checks); !status.ok()) {
    return fail(status.error());
  }
  if (const auto status = check_closeness(*options, material->prompts, checks); !status.ok()) {
    return fail(status.error());
  }

  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{} of {} checks passed in {:.0f} s\n", checks.passed(), checks.made(),
             seconds.count());
  return checks.passed() == checks.made() ? kSuccess : kFailure;
}

}  // namespace

void add_selftest(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<EngineFlags>();
  CLI::App* command =
      app.add_subcommand("selftest",
                         "Prove on this machine: equal bits however tokens are "
                         "split, reused or drafted, close values with replay on and off");
  flags->add_to(*command, false);
  command->footer(
      "Equal bits are checked with --deterministic and the fold block of "
      "--linear-replayssm-cache-len, close values with float32 and bfloat16 activations (with "
      "--device cuda: bfloat16), whatever "
      "--deterministic and --dtype say otherwise. With bfloat16 activations replay on and off "
      "round "
      "differently, and a long free-running text usually parts at some word; what is compared is "
      "the "
      "choice after the same words. Exit code 0 only if every check passes.");
  command->callback([flags, &exit_code] { exit_code = selftest(*flags); });
}

}  // namespace replayssm::cli
