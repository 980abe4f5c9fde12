// map, select, reject, selectattr and rejectattr: filters that apply another filter or a test.
#include <array>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/item_key.h"

namespace replayssm::jinja {
namespace {

// The arguments from `from` on, for the filter or test that is applied.
Arguments rest_of(const Arguments& arguments, std::size_t from) {
  Arguments rest;
  for (std::size_t i = from; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  rest.named = arguments.named;
  return rest;
}

const OriginText* name_at(const Arguments& arguments, std::size_t position) {
  return position < arguments.positional.size() ? arguments.positional[position].text() : nullptr;
}

// map(attribute="name", default=value): the attribute of each item.
Value map_attribute(Interpreter& interpreter, const Value& subject, const Arguments& arguments) {
  const Value* path = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      path = &value;
    } else if (name == "default") {
      otherwise = &value;
    } else {
      return interpreter.fail(fmt::format("Unexpected keyword argument '{}'", name));
    }
  }
  if (path == nullptr) return interpreter.fail("map requires a filter argument");
  std::vector<Value> mapped;
  for (const Value& item : interpreter.iterate(subject)) {
    mapped.push_back(key_of(interpreter, item, path, otherwise));
  }
  return Value::list(std::move(mapped));
}

Value map(Interpreter& interpreter, const Value& subject, const BoundArguments& bound) {
  const Arguments& arguments = bound.all();
  if (arguments.positional.empty()) return map_attribute(interpreter, subject, arguments);
  const OriginText* name = name_at(arguments, 0);
  const Builtin* filter = name == nullptr ? nullptr : find_filter(name->bytes());
  if (filter == nullptr) {
    return interpreter.fail(
        fmt::format("No filter named '{}'.", to_text(arguments.positional[0]).bytes()));
  }
  const Arguments rest = rest_of(arguments, 1);
  std::vector<Value> mapped;
  for (const Value& item : interpreter.iterate(subject)) {
    mapped.push_back(run_builtin(interpreter, *filter, item, rest));
    if (!interpreter.spend(1)) break;
  }
  return Value::list(std::move(mapped));
}

// The items for which the test at `test_position` holds, or does not where it is `rejected`; the
// test sees the item, or its attribute `path`. Without a test: whether it is true.
Value chosen(Interpreter& interpreter, const Value& subject, const Arguments& arguments,
             std::size_t test_position, const Value* path, bool rejected) {
  const Builtin* test = nullptr;
  if (arguments.positional.size() > test_position) {
    const OriginText* name = name_at(arguments, test_position);
    test = name == nullptr ? nullptr : find_test(name->bytes());
    if (test == nullptr) {
      return interpreter.fail(
          fmt::format("No test named '{}'.", to_text(arguments.positional[test_position]).bytes()));
    }
  }
  const Arguments rest = rest_of(arguments, test_position + 1);
  std::vector<Value> items;
  for (Value& item : interpreter.iterate(subject)) {
    const Value tested = key_of(interpreter, item, path);
    const bool holds =
        truth(test == nullptr ? tested : run_builtin(interpreter, *test, tested, rest));
    if (holds != rejected) items.push_back(std::move(item));
    if (!interpreter.spend(1)) break;
  }
  return Value::list(std::move(items));
}

template <bool rejected>
Value by_item(Interpreter& interpreter, const Value& subject, const BoundArguments& bound) {
  return chosen(interpreter, subject, bound.all(), 0, nullptr, rejected);
}

template <bool rejected>
Value by_attribute(Interpreter& interpreter, const Value& subject, const BoundArguments& bound) {
  const Arguments& arguments = bound.all();
  if (arguments.positional.empty()) return interpreter.fail("Missing parameter for attribute name");
  return chosen(interpreter, subject, arguments, 1, &arguments.positional[0], rejected);
}

}  // namespace

std::span<const Builtin> selection_filters() {
  static const std::array<Builtin, 5> table = {{
      {"map", {"*"}, 0, map},
      {"select", {"*"}, 0, by_item<false>},
      {"reject", {"*"}, 0, by_item<true>},
      {"selectattr", {"*"}, 0, by_attribute<false>},
      {"rejectattr", {"*"}, 0, by_attribute<true>},
  }};
  return table;
}

}  // namespace replayssm::jinja
