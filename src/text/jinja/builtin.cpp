#include "text/jinja/builtin.h"

#include <algorithm>

#include "text/jinja/interpreter.h"

namespace replayssm::jinja {
namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Builtin& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (const auto table :
       {value_filters(), text_filters(), sequence_filters(), selection_filters()}) {
    if (const Builtin* found = find_in(table, name)) return found;
  }
  return nullptr;
}

const Builtin* find_test(std::string_view name) { return find_in(tests(), name); }

const Builtin* find_method(const Value& subject, std::string_view name) {
  if (subject.text() != nullptr) return find_in(text_methods(), name);
  if (subject.dict() != nullptr) return find_in(dict_methods(), name);
  if (subject.list() != nullptr) return find_in(list_methods(), name);
  return nullptr;
}

Value run_builtin(Interpreter& interpreter, const Builtin& builtin, const Value& subject,
                  const Arguments& arguments) {
  if (interpreter.failed()) return Value();
  const std::vector<std::string_view>& parameters = builtin.parameters;
  if (parameters.size() == 1 && parameters[0] == "*") {
    return builtin.run(interpreter, subject, BoundArguments({}, arguments));
  }
  if (arguments.positional.size() > parameters.size()) {
    return interpreter.fail(fmt::format("{}() takes at most {} arguments, got {}", builtin.name,
                                        parameters.size(), arguments.positional.size()));
  }
  std::vector<const Value*> values(parameters.size(), nullptr);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    const auto index = static_cast<std::size_t>(found - parameters.begin());
    if (found == parameters.end() || values[index] != nullptr) {
      return interpreter.fail(
          fmt::format("{}() got an unexpected argument '{}'", builtin.name, name));
    }
    values[index] = &value;
  }
  for (std::size_t i = 0; i < builtin.required; ++i) {
    if (values[i] == nullptr) {
      return interpreter.fail(
          fmt::format("{}() lacks its argument '{}'", builtin.name, parameters[i]));
    }
  }
  return builtin.run(interpreter, subject, BoundArguments(std::move(values), arguments));
}

}  // namespace replayssm::jinja
