// What a template finds ready: filters, tests, methods and functions, each an entry of a table.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace replayssm::jinja {

class Interpreter;

// Arguments matched to a builtin's parameters.
class BoundArguments {
 public:
  BoundArguments(std::vector<const Value*> values, const Arguments& all)
      : values_(std::move(values)), all_(&all) {}

  // Null where the caller passed none.
  const Value* operator[](std::size_t parameter) const { return values_[parameter]; }
  // By position, where absent: `otherwise`.
  bool flag(std::size_t parameter, bool otherwise) const {
    return values_[parameter] == nullptr ? otherwise : truth(*values_[parameter]);
  }
  // The text of a parameter; null where it is absent or no text.
  const OriginText* text(std::size_t parameter) const {
    return values_[parameter] == nullptr ? nullptr : values_[parameter]->text();
  }
  // Everything as it was passed, for builtins that take any arguments.
  const Arguments& all() const { return *all_; }

 private:
  std::vector<const Value*> values_;
  const Arguments* all_;
};

struct Builtin {
  // `subject` is what is filtered or tested, or the object of a method; undefined for functions.
  // On failure: interpreter.fail(), whose result is returned.
  using Run = Value (*)(Interpreter& interpreter, const Value& subject,
                        const BoundArguments& arguments);

  std::string_view name;
  std::vector<std::string_view> parameters;  // in order; "*" alone: takes anything
  std::size_t required;                      // so many of them must be passed
  Run run;
};

// Null where there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
// A method of a str, list, tuple or dict.
const Builtin* find_method(const Value& subject, std::string_view name);

// The tables. Functions are what every template sees: range, namespace, dict, raise_exception,
// strftime_now.
std::span<const Builtin> global_functions();
std::span<const Builtin> tests();
std::span<const Builtin> value_filters();
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> selection_filters();
std::span<const Builtin> text_methods();
std::span<const Builtin> list_methods();
std::span<const Builtin> dict_methods();

// Matches and runs. Wrong arguments fail in the interpreter.
Value run_builtin(Interpreter& interpreter, const Builtin& builtin, const Value& subject,
                  const Arguments& arguments);

}  // namespace replayssm::jinja
