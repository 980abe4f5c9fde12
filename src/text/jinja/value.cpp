#include "text/jinja/value.h"

#include <fmt/format.h>

#include <cmath>

#include "text/jinja/text_operations.h"

namespace replayssm::jinja {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// Releases values without recursion: a template can nest lists deeper than the stack is.
void release(std::vector<Value> values) {
  thread_local std::vector<Value>* waiting = nullptr;
  if (waiting != nullptr) {  // a destructor below the loop at the end
    for (Value& value : values) waiting->push_back(value.take());
    return;
  }
  waiting = &values;
  while (!values.empty()) {
    const Value last = values.back().take();
    values.pop_back();
  }
  waiting = nullptr;
}

OriginText plain(std::string_view text) { return OriginText(std::string(text), false); }

OriginText representation_of_items(const std::vector<Value>& items, std::string_view open,
                                   std::string_view close, int depth) {
  OriginText text = plain(open);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text.append(", ", false);
    text.append(representation(items[i], depth + 1));
  }
  text.append(close, false);
  return text;
}

OriginText representation_of_dict(const Dict& dict, int depth) {
  OriginText text = plain("{");
  for (const auto& [key, value] : dict.entries()) {
    if (text.size() > 1) text.append(", ", false);
    text.append(representation(key, depth + 1));
    text.append(": ", false);
    text.append(representation(value, depth + 1));
  }
  text.append("}", false);
  return text;
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, int depth) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, int depth) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other, depth + 1)) return false;
  }
  return true;
}

}  // namespace

List::List(std::vector<Value> list_items, bool is_tuple)
    : items(std::move(list_items)), tuple(is_tuple) {}

List::~List() { release(std::move(items)); }

Dict::~Dict() {
  std::vector<Value> values;
  values.reserve(entries_.size());
  for (auto& [key, value] : entries_) values.push_back(value.take());
  release(std::move(values));
}

std::optional<std::size_t> Dict::index_of(const Value& key) const {
  if (key.text() != nullptr) {
    const auto found = index_of_text_.find(key.text()->bytes());
    if (found == index_of_text_.end()) return std::nullopt;
    return found->second;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (equal(entries_[i].first, key)) return i;
  }
  return std::nullopt;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index_of_text_.find(std::string(key));
  return found == index_of_text_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  const auto index = index_of(key);
  return index ? &entries_[*index].second : nullptr;
}

void Dict::set(const Value& key, Value value) {
  if (const auto index = index_of(key)) {
    entries_[*index].second = std::move(value);
    return;
  }
  if (key.text() != nullptr) index_of_text_.emplace(key.text()->bytes(), entries_.size());
  entries_.emplace_back(key, std::move(value));
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* integer = std::get_if<std::int64_t>(&held_)) return *integer;
  if (const auto* boolean = std::get_if<bool>(&held_)) return *boolean ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* floating = std::get_if<double>(&held_)) return *floating;
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return std::nullopt;
}

std::string_view type_name(const Value& value) {
  return std::visit(
      Overloaded{
          [](const Undefined&) -> std::string_view { return "Undefined"; },
          [](None) -> std::string_view { return "NoneType"; },
          [](bool) -> std::string_view { return "bool"; },
          [](std::int64_t) -> std::string_view { return "int"; },
          [](double) -> std::string_view { return "float"; },
          [](const std::shared_ptr<const OriginText>&) -> std::string_view { return "str"; },
          [](const std::shared_ptr<List>& list) -> std::string_view {
            return list->tuple ? "tuple" : "list";
          },
          [](const std::shared_ptr<Dict>&) -> std::string_view { return "dict"; },
          [](const std::shared_ptr<const Function>&) -> std::string_view { return "function"; },
          [](const std::shared_ptr<Object>& object) { return object->type_name(); }},
      value.held());
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = value.number()) return *number != 0;
  if (value.text() != nullptr) return !value.text()->empty();
  if (value.list() != nullptr) return !value.list()->items.empty();
  if (value.dict() != nullptr) return !value.dict()->entries().empty();
  return true;
}

bool equal(const Value& a, const Value& b, int depth) {
  if (depth > kDeepestValue) return false;
  const auto a_integer = a.integer();
  const auto b_integer = b.integer();
  if (a_integer && b_integer) return *a_integer == *b_integer;
  if (a.number() && b.number()) return *a.number() == *b.number();
  if (a.held().index() != b.held().index()) return false;
  if (a.text() != nullptr) return a.text()->bytes() == b.text()->bytes();
  if (a.list() != nullptr) {
    return a.list()->tuple == b.list()->tuple &&
           equal_items(a.list()->items, b.list()->items, depth);
  }
  if (a.dict() != nullptr) return equal_dicts(*a.dict(), *b.dict(), depth);
  if (a.function() != nullptr) return a.function() == b.function();
  if (a.object() != nullptr) return a.object() == b.object();
  return true;  // both undefined, or both None
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

OriginText to_text(const Value& value) {
  if (value.text() != nullptr) return *value.text();
  if (value.is_undefined()) return {};
  return representation(value);
}

OriginText representation(const Value& value, int depth) {
  if (depth > kDeepestValue) return plain("...");
  return std::visit(
      Overloaded{
          [](const Undefined&) { return plain("Undefined"); }, [](None) { return plain("None"); },
          [](bool boolean) { return plain(boolean ? "True" : "False"); },
          [](std::int64_t integer) { return plain(fmt::format("{}", integer)); },
          [](double floating) { return plain(float_text(floating)); },
          [](const std::shared_ptr<const OriginText>& text) { return quoted(*text); },
          [&](const std::shared_ptr<List>& list) {
            if (!list->tuple) return representation_of_items(list->items, "[", "]", depth);
            const bool single = list->items.size() == 1;
            return representation_of_items(list->items, "(", single ? ",)" : ")", depth);
          },
          [&](const std::shared_ptr<Dict>& dict) { return representation_of_dict(*dict, depth); },
          [](const std::shared_ptr<const Function>& function) {
            return plain(fmt::format("<function {}>", function->name));
          },
          [](const std::shared_ptr<Object>& object) {
            return plain(fmt::format("<{}>", object->type_name()));
          }},
      value.held());
}

std::optional<std::vector<Value>> items_of(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.list() != nullptr) return value.list()->items;
  if (value.dict() != nullptr) {
    for (const auto& [key, unused] : value.dict()->entries()) items.push_back(key);
    return items;
  }
  if (value.text() != nullptr) {
    for (OriginText& character : characters_of(*value.text()))
      items.emplace_back(std::move(character));
    return items;
  }
  return std::nullopt;
}

}  // namespace replayssm::jinja
