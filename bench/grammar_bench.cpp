// Times the token masks of constrained decoding: for every position of a document, the mask worked
// out for the first time and the mask remembered, over the embedded model's vocabulary and over a
// made-up one of 250 thousand tokens.
//
// Usage: grammar_bench TOKENIZER_DIRECTORY
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>

#include "grammar/grammar.h"
#include "text/tokenizer.h"

namespace {

using namespace replayssm;
using grammar::ConstrainedTokens;
using grammar::Grammar;
using grammar::GrammarState;
using grammar::TokenTrie;

// Processor time, so that a busy machine does not count.
double microseconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  };
  const double from = now();
  work();
  return now() - from;
}

void check(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.error().message);
  std::exit(1);
}

std::string percentiles(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
  };
  return fmt::format("{:9.1f} {:9.1f} {:9.1f}", at(0.5), at(0.95), at(1.0));
}

// What vocabularies of that size are made of: bytes, words with and without a space before, other
// scripts (some cut inside a character), digits, white space and code.
std::vector<std::string> made_up_vocabulary(std::size_t size) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  std::mt19937 random(1);
  const std::string_view code = "{}[]()<>\"':;,.=+-*/\\_#&|!? \n\t";
  while (tokens.size() < size) {
    std::string token;
    const auto kind = random() % 100;
    const std::size_t length = 2 + random() % 8;
    if (kind < 60) {
      if (kind < 35) token += ' ';
      for (std::size_t i = 0; i < length; ++i) token += static_cast<char>('a' + random() % 26);
    } else if (kind < 88) {
      for (std::size_t i = 0; i < 1 + length / 3; ++i) {
        const auto c = 0x4e00 + random() % 20000;
        token += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
                  static_cast<char>(0x80 | (c & 63))};
      }
      if (kind > 85) token.pop_back();
    } else {
      for (std::size_t i = 0; i < length / 2 + 1; ++i) token += code[random() % code.size()];
      if (kind > 94) token += "name";
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void report(std::string_view name, const std::shared_ptr<const TokenTrie>& vocabulary) {
  struct Job {
    std::string_view name;
    Grammar grammar;
    std::string document;
  };
  const std::string person =
      R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["first", "poet"],)"
      R"( "address": {"street": "12 St James's Square", "city": "London"}, "note": "née Byron, )"
      R"(\"the enchantress of numbers\", wrote the first program for a machine never built."})";
  const std::string schema = R"({"type": "object", "properties": {
      "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "email": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
      "address": {"type": "object", "properties": {"street": {"type": "string"},
      "city": {"type": "string"}}, "required": ["street", "city"], "additionalProperties": false},
      "note": {"type": "string"}}, "required": ["name", "age"], "additionalProperties": false})";
  std::string limited = schema;
  const std::string plain = R"("note": {"type": "string"})";
  limited.replace(limited.find(plain), plain.size(),
                  R"("note": {"type": "string", "maxLength": 200})");
  const auto parse = [](const std::string& text) {
    return Grammar::from_schema(nlohmann::ordered_json::parse(text)).value();
  };
  const std::vector<Job> jobs = {{"json_object", Grammar::json_object(), person},
                                 {"schema", parse(schema), person},
                                 {"schema with maxLength", parse(limited), person}};
  for (const Job& job : jobs) {
    const auto tokens = std::make_shared<ConstrainedTokens>(job.grammar, vocabulary);
    std::vector<std::uint32_t> bits(vocabulary->mask_words());
    std::vector<double> first;
    std::vector<double> again;
    std::vector<double> accepts;
    GrammarState state(tokens);
    // A byte at a time: the places between the bytes include those between the tokens.
    for (const char c : job.document) {
      const auto fill = [&] { check(state.fill_mask(bits)); };
      first.push_back(microseconds(fill));
      again.push_back(microseconds(fill));
      accepts.push_back(microseconds([&] { check(state.accept(std::string_view(&c, 1))); }));
    }
    const double mean =
        std::accumulate(first.begin(), first.end(), 0.0) / static_cast<double>(first.size());
    fmt::print("{:<22} {:<22} first {} mean {:7.1f}   again {}   accept {}\n", name, job.name,
               percentiles(first), mean, percentiles(again), percentiles(accepts));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: grammar_bench TOKENIZER_DIRECTORY\n");
    return 2;
  }
  const auto tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  fmt::print("microseconds: median, 95th percentile, largest over the positions of a document\n");
  std::vector<std::string_view> views;
  for (TokenId id = 0; id < tokenizer->size(); ++id) {
    views.push_back(tokenizer->is_added(id) ? std::string_view() : tokenizer->token_bytes(id));
  }
  const TokenId end = tokenizer->eos().value_or(0);
  report(fmt::format("embedded, {}", views.size()),
         std::make_shared<const TokenTrie>(views, std::span(&end, 1)));
  const std::vector<std::string> tokens = made_up_vocabulary(250'000);
  views.assign(tokens.begin(), tokens.end());
  std::shared_ptr<const TokenTrie> large;
  const double build = microseconds(
      [&] { large = std::make_shared<const TokenTrie>(views, std::span<const TokenId>()); });
  fmt::print("trie of {} tokens: {} nodes, {} beside plain text, built in {:.0f} ms\n",
             views.size(), large->nodes().size(), large->nodes_beside_plain().size(), build / 1000);
  report("made up, 250000", large);
  return 0;
}
