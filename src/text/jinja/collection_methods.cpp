// Methods of list, tuple and dict.
#include <algorithm>
#include <array>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace replayssm::jinja {
namespace {

// Lists may be changed, unlike in Hugging Face's sandbox: published templates that do so were
// written for engines that allow it. What changes is this rendering's own copy.
Value append(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  List& list = *subject.list();
  if (list.tuple) return interpreter.fail("'tuple' object has no attribute 'append'");
  if (arguments[0]->list() == &list) return interpreter.fail("a list cannot hold itself");
  if (list.items.size() >= kLargestList) return interpreter.fail("the list is too long");
  list.items.push_back(*arguments[0]);
  return None{};
}

Value pop(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  List& list = *subject.list();
  if (list.tuple) return interpreter.fail("'tuple' object has no attribute 'pop'");
  const auto size = static_cast<std::int64_t>(list.items.size());
  std::int64_t index = arguments[0] == nullptr ? -1 : arguments[0]->integer().value_or(size);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return interpreter.fail("pop index out of range");
  const Value item = list.items[static_cast<std::size_t>(index)];
  list.items.erase(list.items.begin() + index);
  interpreter.spend(static_cast<std::size_t>(size - index) / 16);
  return item;
}

Value index_of(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const std::vector<Value>& items = subject.list()->items;
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Value& item) { return equal(item, *arguments[0]); });
  if (found == items.end()) return interpreter.fail("the value is not in the list");
  return static_cast<std::int64_t>(found - items.begin());
}

Value count(Interpreter&, const Value& subject, const BoundArguments& arguments) {
  const std::vector<Value>& items = subject.list()->items;
  return static_cast<std::int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equal(item, *arguments[0]); }));
}

Value get(Interpreter&, const Value& subject, const BoundArguments& arguments) {
  if (const Value* value = subject.dict()->find(*arguments[0])) return *value;
  return arguments[1] == nullptr ? Value(None{}) : *arguments[1];
}

Value keys(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  return Value::list(interpreter.iterate(subject));
}

Value values(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  std::vector<Value> list;
  for (const auto& [key, value] : subject.dict()->entries()) list.push_back(value);
  interpreter.spend(list.size());
  return Value::list(std::move(list));
}

Value items(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  std::vector<Value> list;
  for (const auto& [key, value] : subject.dict()->entries()) {
    list.push_back(Value::list({key, value}, /*tuple=*/true));
  }
  interpreter.spend(list.size());
  return Value::list(std::move(list));
}

Value update(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const Dict* other = arguments[0]->dict();
  if (other == nullptr || other == subject.dict()) {
    return interpreter.fail("dict.update() expects another dict");
  }
  for (const auto& [key, value] : other->entries()) subject.dict()->set(key, value);
  interpreter.spend(other->entries().size());
  return None{};
}

}  // namespace

std::span<const Builtin> list_methods() {
  static const std::array<Builtin, 4> table = {{
      {"append", {"object"}, 1, append},
      {"pop", {"index"}, 0, pop},
      {"index", {"value"}, 1, index_of},
      {"count", {"value"}, 1, count},
  }};
  return table;
}

std::span<const Builtin> dict_methods() {
  static const std::array<Builtin, 5> table = {{
      {"get", {"key", "default"}, 1, get},
      {"keys", {}, 0, keys},
      {"values", {}, 0, values},
      {"items", {}, 0, items},
      {"update", {"other"}, 1, update},
  }};
  return table;
}

}  // namespace replayssm::jinja
