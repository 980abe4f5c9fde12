#include "eval_tasks.h"

#include <fstream>
#include <map>

namespace replayssm::cli {
namespace {

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

Result<std::vector<EvalQuestion>> load_questions(const std::filesystem::path& file, int limit) {
  std::ifstream in(file);
  if (!in) return Error{fmt::format("{}: cannot be read", file.string())};
  std::vector<EvalQuestion> questions;
  std::map<std::string, int> taken;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (stripped(line).empty()) continue;
    const auto json = nlohmann::ordered_json::parse(line, nullptr, false);
    const auto is = [&](const char* field, auto type) {
      return json.contains(field) && type(json[field]);
    };
    if (!json.is_object() || !is("task", [](const auto& v) { return v.is_string(); }) ||
        !is("messages", [](const auto& v) { return v.is_array(); }) ||
        !is("max_tokens", [](const auto& v) { return v.is_number_integer() && v > 0; }) ||
        !is("expected", [](const auto& v) { return v.is_string(); })) {
      return Error{fmt::format("{}:{}: not an object with task, messages, max_tokens and expected",
                               file.string(), number)};
    }
    EvalQuestion question;
    question.task = json["task"].get<std::string>();
    if (limit > 0 && taken[question.task]++ >= limit) continue;
    question.messages = json["messages"];
    if (json.contains("tools")) question.tools = json["tools"];
    question.max_tokens = json["max_tokens"].get<int>();
    question.expected = json["expected"].get<std::string>();
    questions.push_back(std::move(question));
  }
  return questions;
}

bool is_right(std::string_view answer, const EvalQuestion& question) {
  return stripped(answer) == stripped(question.expected);
}

}  // namespace replayssm::cli
