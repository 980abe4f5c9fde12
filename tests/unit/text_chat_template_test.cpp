#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

using nlohmann::ordered_json;

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Renders as the golden files were rendered: at their time, in UTC, with their special tokens.
class ChatTemplateTest : public testing::Test {
 protected:
  ChatTemplateTest() {
    setenv("TZ", "UTC", 1);
    tzset();
  }

  static ChatTemplate parsed(std::string_view source, const ordered_json& goldens) {
    Result<ChatTemplate> made =
        ChatTemplate::parse(source, goldens["special_tokens"].get<ChatTemplate::SpecialTokens>());
    if (!made) throw std::runtime_error(made.error().message);
    return *std::move(made);
  }

  // The text, or "error: ..." where there is none.
  static std::string outcome(std::string_view source, const ordered_json& context,
                             const ordered_json& goldens) {
    const Result<ChatTemplate> made =
        ChatTemplate::parse(source, goldens["special_tokens"].get<ChatTemplate::SpecialTokens>());
    if (!made) return "error: " + made.error().message;
    const Result<RenderedPrompt> prompt = made->render(context, goldens["now"].get<std::time_t>());
    return prompt ? text_of(*prompt) : "error: " + prompt.error().message;
  }
};

// Errors that the template's author or the user of an undefined name sees are jinja2's words; of
// the others only that there is one.
void expect_error(const std::string& outcome, const ordered_json& expected) {
  ASSERT_TRUE(outcome.starts_with("error: ")) << "rendered: " << outcome;
  const auto kind = expected["kind"].get<std::string>();
  if (kind == "TemplateError" || kind == "UndefinedError" || kind == "TemplateAssertionError") {
    EXPECT_NE(outcome.find(expected["error"].get<std::string>()), std::string::npos) << outcome;
  }
  EXPECT_NE(outcome.find("line "), std::string::npos) << outcome;
}

TEST_F(ChatTemplateTest, RendersEveryFeatureAsJinja2Does) {
  const ordered_json goldens = read_golden_file("snippet_goldens.json");
  ASSERT_GT(goldens["snippets"].size(), 150u);
  for (const auto& snippet : goldens["snippets"]) {
    const auto source = snippet[0].get<std::string>();
    SCOPED_TRACE(source);
    const std::string rendered = outcome(source, goldens["context"], goldens);
    if (snippet[1].contains("error")) {
      expect_error(rendered, snippet[1]);
    } else {
      EXPECT_EQ(rendered, snippet[1]["text"].get<std::string>());
    }
  }
}

TEST_F(ChatTemplateTest, RendersTheFamiliesTurnFormatsAsJinja2Does) {
  const ordered_json goldens = read_golden_file("template_goldens.json");
  std::map<std::string, std::string> sources;
  ASSERT_GT(goldens["outputs"].size(), 600u);
  for (const auto& output : goldens["outputs"]) {
    const auto name = output[0].get<std::string>();
    const auto messages = output[1].get<std::string>();
    const ordered_json& keywords = goldens["keywords"][output[2].get<std::size_t>()];
    SCOPED_TRACE(name + " " + messages + " " + keywords.dump());
    if (!sources.contains(name))
      sources[name] = file_text(text_data("templates/" + name + ".jinja"));
    ordered_json context = {{"messages", goldens["messages"][messages]}};
    context.update(keywords);
    const std::string rendered = outcome(sources[name], context, goldens);
    if (output[3].contains("error")) {
      expect_error(rendered, output[3]);
    } else {
      ASSERT_EQ(rendered, output[3]["text"].get<std::string>());
    }
  }
}

TEST_F(ChatTemplateTest, NamesTheLineOfAnError) {
  const ordered_json goldens = read_golden_file("snippet_goldens.json");
  const ordered_json context = {{"messages", ordered_json::array()}};
  EXPECT_EQ(outcome("a\n\n{{ raise_exception('Sorry.') }}", context, goldens),
            "error: chat template, line 3: Sorry.");
  EXPECT_EQ(outcome("a\n{{ b.c }}", context, goldens),
            "error: chat template, line 2: 'b' is undefined");
  EXPECT_EQ(outcome("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n{{ m() }}", context, goldens),
            "error: chat template, line 2: division by zero");
  EXPECT_EQ(outcome("a\n{% if %}", context, goldens),
            "error: chat template, line 2: expected an expression, got '%}'");
}

TEST_F(ChatTemplateTest, RefusesUnsupportedStatementsByName) {
  for (const char* name :
       {"include 'x'", "extends 'x'", "import 'x' as y", "block b", "autoescape", "trans"}) {
    const Result<ChatTemplate> made = ChatTemplate::parse(fmt::format("{{% {} %}}", name));
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find(fmt::format("'{}", std::string_view(name).substr(0, 5))),
              std::string::npos)
        << made.error().message;
  }
}

TEST_F(ChatTemplateTest, EndsWhatWouldNotEnd) {
  const ordered_json goldens = read_golden_file("snippet_goldens.json");
  const ordered_json context = {{"messages", ordered_json::array()}};
  const auto expect_refused = [&](const std::string& source, std::string_view words) {
    const std::string result = outcome(source, context, goldens);
    EXPECT_TRUE(result.starts_with("error: ")) << source.substr(0, 80);
    EXPECT_NE(result.find(words), std::string::npos) << result.substr(0, 200);
  };
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion");
  expect_refused("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
                 "steps");
  expect_refused(
      "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
      "{% endfor %}",
      "MiB");
  expect_refused("{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}", "output");
  expect_refused("{{ 'x' * 9999999999 }}", "too long");
  expect_refused("{{ [1] * 9999999999 }}", "too long");
  expect_refused("{{ ('x' * 100000) | replace('x', 'y' * 100000) }}", "too long");
  expect_refused("{{ '%999999999d' % 1 }}", "wider");
  expect_refused("{{ 2 ** 100 }}", "too large");
  expect_refused(fmt::format("{{{{ {:(>5000}{:)>5000} }}}}", "", ""), "nested");
  expect_refused(fmt::format("{{{{ {:->5000} }}}}", 1), "nested");
  expect_refused(fmt::format("{{{{ {:[>5000}{:]>5000} }}}}", "", ""), "nested");
  std::string ifs;
  for (int i = 0; i < 5000; ++i) ifs += "{% if true %}";
  expect_refused(ifs, "nested");
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  expect_refused(sum + " }}", "operations");
  expect_refused(
      "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}{{ ns.x | tojson }}",
      "nested deeper");
}

TEST_F(ChatTemplateTest, RefusesContextsThatNestTooDeep) {
  Result<ChatTemplate> made = ChatTemplate::parse("{{ messages }}");
  ASSERT_TRUE(made);
  ordered_json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = ordered_json::array({std::move(deep)});
  const Result<RenderedPrompt> prompt = made->render({{"messages", deep}});
  ASSERT_FALSE(prompt);
  EXPECT_NE(prompt.error().message.find("messages"), std::string::npos);
  EXPECT_FALSE(made->render(ordered_json::array()).ok()) << "a context is an object";
}

TEST_F(ChatTemplateTest, TellsToolsThatAreNoneFromAnUndefinedName) {
  Result<ChatTemplate> made = ChatTemplate::parse("{{ tools is defined }} {{ tools is none }}");
  ASSERT_TRUE(made);
  EXPECT_EQ(text_of(*made->render(ordered_json::object())), "True True");
}

// Which bytes of a rendered text are trusted, written as the text with untrusted runs in brackets.
std::string marked(std::string_view source, const ordered_json& context) {
  Result<ChatTemplate> made = ChatTemplate::parse(source, {{"eos_token", "<E>"}});
  if (!made) return made.error().message;
  Result<RenderedPrompt> prompt = made->render(context, 0);
  if (!prompt) return prompt.error().message;
  std::string text;
  for (const PromptPart& part : *prompt)
    text += part.trusted ? part.text : fmt::format("[{}]", part.text);
  return text;
}

TEST_F(ChatTemplateTest, KeepsTheOriginOfEveryByteThroughEveryOperation) {
  const ordered_json context = {
      {"u", "us er"}, {"l", {"p", "q"}}, {"d", {{"key", "val"}}}, {"n", 5}};
  EXPECT_EQ(marked("a{{ u }}b{{ eos_token }}", context), "a[us er]b<E>");
  EXPECT_EQ(marked("{{ 'a' + u + 'b' }}{{ 'c' ~ u ~ 'd' }}", context), "a[us er]bc[us er]d");
  EXPECT_EQ(marked("{{ ('<' ~ u ~ '>')[0:3] }}{{ ('<' ~ u ~ '>')[::-1] }}", context),
            "<[us]>[re su]<");
  EXPECT_EQ(marked("{{ (' <' ~ u ~ '> ') | trim }}{{ ('xx' ~ u).lstrip('x') }}", context),
            "<[us er]>[us er]");
  EXPECT_EQ(marked("{{ ('a,' ~ u ~ ',b').split(',') | join('-') }}", context), "a-[us er]-b");
  EXPECT_EQ(marked("{{ u.split() | join('+') }}{{ u | replace(' ', '_') }}", context),
            "[us]+[erus]_[er]");
  EXPECT_EQ(marked("{{ 'X-X' | replace('X', u) }}", context), "[us er]-[us er]");
  EXPECT_EQ(marked("{{ ('a' ~ u) | upper }}{{ ('a' ~ u) | title }}{{ u | capitalize }}", context),
            "A[US ER]A[us ErUs er]");
  EXPECT_EQ(marked("{{ '%s=%s' % ('k', u) }}{{ '%s' | format(u) }}", context), "k=[us erus er]");
  EXPECT_EQ(marked("{{ d | tojson }}{{ {'t': u} | tojson }}", context),
            R"([{"key": "val"}{"]t[": "us er"}])");
  EXPECT_EQ(marked("{{ d }}{{ d.items() | list }}", context), "[{'key': 'val'}[('key', 'val')]]");
  EXPECT_EQ(marked("{% for k, v in d | items %}<{{ k }}={{ v }}>{% endfor %}", context),
            "<[key]=[val]>");
  EXPECT_EQ(marked("{% for c in u %}{{ c }}.{% endfor %}", context), "[u].[s].[ ].[e].[r].");
  EXPECT_EQ(marked("{% set x %}a{{ u }}{% endset %}{{ x }}", context), "a[us er]");
  EXPECT_EQ(
      marked("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}{{ m('t') | upper }}", context),
      "<[us er]><T>");
  EXPECT_EQ(marked("{% filter upper %}a{{ u }}{% endfilter %}", context), "A[US ER]");
  EXPECT_EQ(marked("{{ ('a\n' ~ u) | indent(2) }}{{ u.splitlines() | first }}", context),
            "a[\n  us erus er]");
  EXPECT_EQ(marked("{{ l | sort | join(', ') }}{{ l | map('upper') | join }}", context),
            "[p], [qPQ]");
  EXPECT_EQ(marked("{{ n }}{{ 7 }}{{ true }}{{ u | length }}", context), "[57True5]");
  EXPECT_EQ(marked("{{ u * 2 }}{{ 'ab' * 2 }}{{ u | default('x') }}", context),
            "[us erus er]abab[us er]");
}

class TemplateDirectory : public testing::Test {
 protected:
  TemplateDirectory() {
    std::string name = testing::TempDir() + "/replayssm_template_XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~TemplateDirectory() override { std::filesystem::remove_all(directory_); }

  void write(const char* name, const std::string& text) {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  std::string rendered() {
    const Result<ChatTemplate> made = ChatTemplate::load(directory_);
    return made ? text_of(*made->render(ordered_json::object())) : made.error().message;
  }

  std::filesystem::path directory_;
};

TEST_F(TemplateDirectory, PrefersTheTemplateFileToTheConfiguration) {
  EXPECT_NE(rendered().find("neither chat_template.jinja nor"), std::string::npos);
  write("tokenizer_config.json",
        R"({"chat_template": "config {{ bos_token }}", "bos_token": "<B>"})");
  EXPECT_EQ(rendered(), "config <B>");
  write("chat_template.jinja", "file {{ bos_token }}");
  EXPECT_EQ(rendered(), "file <B>");
}

TEST_F(TemplateDirectory, TakesTheDefaultOfSeveralTemplates) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}],
            "bos_token": null, "eos_token": {"content": "<E>"}})");
  EXPECT_EQ(rendered(), "d");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_NE(rendered().find("chat_template: expected"), std::string::npos);
}

}  // namespace
}  // namespace replayssm
