// Times the token masks of constrained decoding: for every position of a document, the mask worked
// out for the first time and the mask remembered, over the embedded model's vocabulary and over a
// made-up one of 250 thousand tokens. Then counts what schemas ask for of a request's allowance
// (grammar/work_allowance.h) along random texts: no time, so the numbers are the same on every
// machine.
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
#include "grammar/work_allowance.h"
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

nlohmann::ordered_json pattern(const char* text) { return {{"type", "string"}, {"pattern", text}}; }

std::vector<std::pair<std::string, nlohmann::ordered_json>> dear_schemas() {
  using Json = nlohmann::ordered_json;
  Json optional = {{"type", "object"}};
  for (int i = 0; i < 300; ++i) {
    optional["properties"][fmt::format("member{}", i)] = {{"type", "integer"}};
  }
  Json tagged = {{"anyOf", Json::array()}};
  for (int i = 0; i < 200; ++i) {
    tagged["anyOf"].push_back(
        {{"type", "object"},
         {"properties",
          {{"kind", {{"const", fmt::format("kind{}", i)}}}, {"value", {{"type", "string"}}}}},
         {"required", {"kind", "value"}}});
  }
  Json texts = {{"enum", Json::array()}};
  std::mt19937 random(2);
  for (int i = 0; i < 8000; ++i) {
    std::string text;
    for (int j = 0; j < 12; ++j) text += static_cast<char>('a' + random() % 26);
    texts["enum"].push_back(text);
  }
  std::vector<std::pair<std::string, Json>> schemas = {{"300 optional members", optional},
                                                       {"anyOf of 200 tagged objects", tagged},
                                                       {"enum of 8000 texts", texts}};
  for (const char* text :
       {"^.{1,1000}[.!?]$", "^.{0,100}foo.{0,100}$", "^(((.{1,100}){1,100}){1,100}){1,100}$",
        "^(.{1,30} ){1,30}$", "^(.*[a-m].{30})*$"}) {
    schemas.emplace_back(text, pattern(text));
  }
  return schemas;
}

// Along random texts of up to 200 tokens, of which the dearest counts.
void report_work(const std::shared_ptr<const TokenTrie>& vocabulary) {
  fmt::print("places of the automaton over {} tokens, of an allowance of {} and {} for a byte\n",
             vocabulary->vocabulary_size(), grammar::WorkAllowance::kMost,
             grammar::WorkAllowance::kPerByte);
  for (const auto& [name, schema] : dear_schemas()) {
    const auto made = Grammar::from_schema(schema);
    std::uint64_t most_for_a_mask = 0;
    double most_for_a_byte = 0;
    bool too_costly = false;
    for (unsigned seed = 0; seed < 3; ++seed) {
      std::mt19937 random(seed);
      GrammarState state(std::make_shared<ConstrainedTokens>(made.value(), vocabulary));
      std::vector<std::uint32_t> bits(vocabulary->mask_words());
      for (int step = 0; step < 200 && !state.complete(); ++step) {
        const std::uint64_t before = state.work();
        const bool filled = state.fill_mask(bits).ok();
        most_for_a_mask = std::max(most_for_a_mask, state.work() - before);
        if (!filled) {
          too_costly = true;
          break;
        }
        std::vector<TokenId> allowed;
        for (std::size_t id = 0; id < vocabulary->vocabulary_size(); ++id) {
          if ((bits[id / 32] >> (id % 32) & 1u) != 0) allowed.push_back(static_cast<TokenId>(id));
        }
        if (allowed.empty()) break;
        if (!state.accept(allowed[random() % allowed.size()]).ok()) {
          too_costly = true;
          break;
        }
      }
      const auto bytes = static_cast<double>(std::max<std::size_t>(state.position().size(), 1));
      most_for_a_byte = std::max(most_for_a_byte, static_cast<double>(state.work()) / bytes);
    }
    fmt::print("{:<40} mask {:>8}   a byte {:>8.0f}{}\n", name, most_for_a_mask, most_for_a_byte,
               too_costly ? "   too costly" : "");
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
  report_work(large);
  return 0;
}
