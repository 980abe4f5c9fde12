// Filters over the items of a list, the keys of a dictionary, or the characters of a text.
#include <algorithm>
#include <array>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/item_key.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"

namespace replayssm::jinja {
namespace {

Value first(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  const std::vector<Value> items = interpreter.iterate(subject);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  const std::vector<Value> items = interpreter.iterate(subject);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  return Value::list(interpreter.iterate(subject));
}

Value reversed(Interpreter& interpreter, const Value& subject, const BoundArguments&) {
  if (subject.text() != nullptr) {
    return interpreter.text(slice(*subject.text(), std::nullopt, std::nullopt, -1));
  }
  std::vector<Value> items = interpreter.iterate(subject);
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Value joined(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const OriginText separator = arguments[0] == nullptr ? OriginText() : to_text(*arguments[0]);
  OriginText text;
  bool is_first = true;
  for (const Value& item : interpreter.iterate(subject)) {
    if (!is_first) text.append(separator);
    is_first = false;
    text.append(to_text(key_of(interpreter, item, arguments[1])));
    if (interpreter.failed() || text.size() > kLargestText) break;
  }
  return interpreter.text(std::move(text));
}

// Items with what they are sorted by.
struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> keyed(Interpreter& interpreter, const Value& subject, bool case_sensitive,
                         const Value* path) {
  std::vector<Keyed> entries;
  for (Value& item : interpreter.iterate(subject)) {
    const Value key = key_of(interpreter, item, path);
    entries.push_back({case_sensitive ? key : without_case(key), std::move(item)});
  }
  return entries;
}

// Stable. A pair that cannot be compared fails, and the order then means nothing.
void sort_by_key(Interpreter& interpreter, std::vector<Keyed>& entries, bool descending) {
  std::stable_sort(entries.begin(), entries.end(), [&](const Keyed& a, const Keyed& b) {
    if (!interpreter.spend(1)) return false;
    const Result<bool> less = descending ? is_less(b.key, a.key) : is_less(a.key, b.key);
    if (!less) interpreter.fail(less.error());
    return less && *less;
  });
}

Value items_of_entries(std::vector<Keyed> entries) {
  std::vector<Value> items;
  for (Keyed& entry : entries) items.push_back(std::move(entry.item));
  return Value::list(std::move(items));
}

Value sorted(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  // "a,b" sorts by several attributes: from the last to the first, as the sort is stable.
  std::vector<Value> paths;
  if (arguments.text(2) != nullptr) {
    for (OriginText& path : split(*arguments.text(2), ",", -1)) paths.emplace_back(std::move(path));
  }
  const bool case_sensitive = arguments.flag(1, false);
  Value value = subject;
  for (std::size_t i = std::max<std::size_t>(paths.size(), 1); i-- > 0;) {
    const Value* path = paths.empty() ? arguments[2] : &paths[i];
    std::vector<Keyed> entries = keyed(interpreter, value, case_sensitive, path);
    sort_by_key(interpreter, entries, arguments.flag(0, false));
    value = items_of_entries(std::move(entries));
  }
  return value;
}

Value sorted_dict(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  if (subject.dict() == nullptr) {
    return interpreter.fail(fmt::format("dictsort() of a '{}'", type_name(subject)));
  }
  const bool case_sensitive = arguments.flag(0, false);
  const bool by_value = arguments.text(1) != nullptr && arguments.text(1)->bytes() == "value";
  std::vector<Keyed> entries;
  for (const auto& [key, value] : subject.dict()->entries()) {
    const Value& by = by_value ? value : key;
    entries.push_back(
        {case_sensitive ? by : without_case(by), Value::list({key, value}, /*tuple=*/true)});
  }
  sort_by_key(interpreter, entries, arguments.flag(2, false));
  return items_of_entries(std::move(entries));
}

Value unique(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  std::vector<Keyed> seen;
  for (Keyed& entry : keyed(interpreter, subject, arguments.flag(0, false), arguments[1])) {
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Keyed& other) { return equal(other.key, entry.key); });
    if (!interpreter.spend(seen.size())) break;
    if (!known) seen.push_back(std::move(entry));
  }
  return items_of_entries(std::move(seen));
}

template <bool largest>
Value extreme(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const std::vector<Keyed> entries =
      keyed(interpreter, subject, arguments.flag(0, false), arguments[1]);
  if (entries.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &entries[0];
  for (const Keyed& entry : entries) {
    const Result<bool> better =
        largest ? is_less(best->key, entry.key) : is_less(entry.key, best->key);
    if (!better) return interpreter.fail(better.error());
    if (*better) best = &entry;
  }
  return best->item;
}

Value sum(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  Value total = arguments[1] == nullptr ? Value(0) : *arguments[1];
  for (const Value& item : interpreter.iterate(subject)) {
    Result<Value> next =
        arithmetic(ArithmeticSign::add, total, key_of(interpreter, item, arguments[0]));
    if (!next) return interpreter.fail(next.error());
    total = *std::move(next);
  }
  return total;
}

Value batch(Interpreter& interpreter, const Value& subject, const BoundArguments& arguments) {
  const std::int64_t size = arguments[0]->integer().value_or(0);
  if (size < 1) return interpreter.fail("batch() expects a count of at least 1");
  std::vector<Value> batches;
  std::vector<Value> current;
  const auto full = [&] { return static_cast<std::int64_t>(current.size()) == size; };
  for (Value& item : interpreter.iterate(subject)) {
    if (full()) batches.push_back(Value::list(std::exchange(current, {})));
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    while (arguments[1] != nullptr && !full() && interpreter.spend(1)) {
      current.push_back(*arguments[1]);
    }
    batches.push_back(Value::list(std::move(current)));
  }
  return Value::list(std::move(batches));
}

}  // namespace

std::span<const Builtin> sequence_filters() {
  static const std::array<Builtin, 12> table = {{
      {"first", {}, 0, first},
      {"last", {}, 0, last},
      {"list", {}, 0, list},
      {"reverse", {}, 0, reversed},
      {"join", {"d", "attribute"}, 0, joined},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sorted},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, sorted_dict},
      {"unique", {"case_sensitive", "attribute"}, 0, unique},
      {"min", {"case_sensitive", "attribute"}, 0, extreme<false>},
      {"max", {"case_sensitive", "attribute"}, 0, extreme<true>},
      {"sum", {"attribute", "start"}, 0, sum},
      {"batch", {"linecount", "fill_with"}, 1, batch},
  }};
  return table;
}

}  // namespace replayssm::jinja
