// What a template computes with: Python's values, of the kinds that chat templates meet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/origin_text.h"

namespace replayssm::jinja {

class Interpreter;
class Value;

// A name or attribute that does not exist. It prints as nothing and is false; most other uses of it
// are errors, which say why it is undefined.
struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined"; may be null
};

struct None {};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A list, or a tuple where `tuple`. Shared by the values that refer to it, as in Python.
struct List {
  std::vector<Value> items;
  bool tuple = false;

  List() = default;
  List(std::vector<Value> list_items, bool is_tuple);
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List();
};

// A dictionary in order of insertion. Shared by the values that refer to it.
class Dict {
 public:
  Dict() = default;
  Dict(const Dict&) = delete;
  Dict& operator=(const Dict&) = delete;
  ~Dict();

  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  // Null where there is none. 1, 1.0 and true are one key, as in Python.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);

 private:
  std::optional<std::size_t> index_of(const Value& key) const;

  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, std::size_t> index_of_text_;  // of the keys that are strings
};

// A macro, a method bound to its object, or a function of the environment.
struct Function {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
};

// A value with named attributes of its own: a namespace, or "loop".
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  // Undefined, without a reason, where there is no such attribute.
  virtual Value attribute(std::string_view name) const = 0;
  // False where attributes cannot be assigned.
  virtual bool assign(std::string_view name, const Value& value) = 0;
};

// Copies share lists, dictionaries, functions and objects, as names do in Python.
class Value {
 public:
  using Held =
      std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const OriginText>,
                   std::shared_ptr<List>, std::shared_ptr<Dict>, std::shared_ptr<const Function>,
                   std::shared_ptr<Object>>;

  Value() = default;  // undefined
  Value(Undefined undefined) : held_(std::move(undefined)) {}
  Value(None none) : held_(none) {}
  Value(bool value) : held_(value) {}
  Value(std::int64_t value) : held_(value) {}
  Value(int value) : held_(std::int64_t{value}) {}
  Value(double value) : held_(value) {}
  Value(OriginText text) : held_(std::make_shared<const OriginText>(std::move(text))) {}
  Value(std::shared_ptr<List> list) : held_(std::move(list)) {}
  Value(std::shared_ptr<Dict> dict) : held_(std::move(dict)) {}
  Value(std::shared_ptr<const Function> function) : held_(std::move(function)) {}
  Value(std::shared_ptr<Object> object) : held_(std::move(object)) {}
  Value(const void*) = delete;  // no pointer is a truth value

  static Value list(std::vector<Value> items, bool tuple = false) {
    return std::make_shared<List>(std::move(items), tuple);
  }
  static Value undefined(std::string why) {
    return Undefined{std::make_shared<const std::string>(std::move(why))};
  }

  const Held& held() const { return held_; }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }

  // Null where the value is of another kind.
  const OriginText* text() const { return pointer<const OriginText>(); }
  List* list() const { return pointer<List>(); }
  Dict* dict() const { return pointer<Dict>(); }
  const Function* function() const { return pointer<const Function>(); }
  Object* object() const { return pointer<Object>(); }

  // As Python's arithmetic sees it: true and false are integers too.
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;

  // Takes the value's contents out, leaving it undefined.
  Value take() { return Value(std::exchange(held_, Held())); }

 private:
  explicit Value(Held held) : held_(std::move(held)) {}
  template <class T>
  T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&held_);
    return held == nullptr ? nullptr : held->get();
  }

  Held held_;
};

// Values that contain each other deeper than this are refused wherever they are walked.
inline constexpr int kDeepestValue = 256;

// Python's name of the type: "str", "int", "dict", ...
std::string_view type_name(const Value& value);

// Whether the value counts as true.
bool truth(const Value& value);

// ==, by value.
bool equal(const Value& a, const Value& b, int depth = 0);

// str(value): text as it is, with the origin of each byte.
OriginText to_text(const Value& value);

// repr(value): text in quotes and escaped.
OriginText representation(const Value& value, int depth = 0);

// repr() of a float: the shortest digits that read back as the same number.
std::string float_text(double value);

// What a for loop runs over: items, keys, or characters. Nothing where the value cannot be
// iterated.
std::optional<std::vector<Value>> items_of(const Value& value);

}  // namespace replayssm::jinja
