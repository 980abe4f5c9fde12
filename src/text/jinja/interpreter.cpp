#include "text/jinja/interpreter.h"

#include "text/jinja/builtin.h"
#include "text/jinja/lexer.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"

namespace replayssm::jinja {
namespace {

std::string why_undefined(const Value& value) {
  const auto* undefined = std::get_if<Undefined>(&value.held());
  return undefined != nullptr && undefined->why ? *undefined->why : "a value is undefined";
}

// "dict object", as jinja2 calls what has no such attribute or element.
std::string owner_name(const Value& of) {
  return of.is_none() ? "None" : fmt::format("{} object", type_name(of));
}

std::string no_attribute(const Value& of, std::string_view name) {
  return fmt::format("'{}' has no attribute '{}'", owner_name(of), name);
}

Value bound_method(const Value& subject, const Builtin& method) {
  return std::make_shared<const Function>(
      Function{std::string(method.name),
               [subject, &method](Interpreter& interpreter, const Arguments& arguments) {
                 return run_builtin(interpreter, method, subject, arguments);
               }});
}

}  // namespace

Result<OriginText> Interpreter::render(const Body& body,
                                       std::vector<std::pair<std::string, Value>> variables) {
  OriginText out;
  out_ = &out;
  scope_ = std::make_shared<Scope>(nullptr);
  for (auto& [name, value] : variables) scope_->set(name, std::move(value));
  run(body);
  if (error_) return *error_;
  return out;
}

Value Interpreter::fail(std::string_view message) {
  if (!error_) error_ = template_error(line_, message);
  return Value();
}

bool Interpreter::spend(std::size_t steps) {
  steps_ += static_cast<std::int64_t>(steps);
  if (steps_ > kMostSteps) fail(fmt::format("more than {} steps", kMostSteps));
  return !failed();
}

Value Interpreter::text(OriginText text) {
  if (text.size() > kLargestText) {
    return fail(fmt::format("a text of more than {} MiB", kLargestText >> 20));
  }
  spend(text.size() / kTextBytesPerStep);
  return Value(std::move(text));
}

Value Interpreter::attribute(const Value& of, std::string_view name) {
  if (of.is_undefined()) return fail(why_undefined(of));
  if (of.object() != nullptr) {
    Value value = of.object()->attribute(name);
    return value.is_undefined() ? Value::undefined(no_attribute(of, name)) : value;
  }
  if (const Builtin* method = find_method(of, name)) return bound_method(of, *method);
  if (of.dict() != nullptr) {
    if (const Value* value = of.dict()->find(name)) return *value;
  }
  return Value::undefined(no_attribute(of, name));
}

Value Interpreter::item(const Value& of, const Value& key) {
  if (of.is_undefined()) return fail(why_undefined(of));
  if (of.dict() != nullptr) {
    if (const Value* value = of.dict()->find(key)) return *value;
  }
  if (key.text() != nullptr) return attribute(of, key.text()->bytes());
  if (const auto index = key.integer()) {
    const auto position = [&](std::int64_t size) -> std::optional<std::size_t> {
      const std::int64_t at = *index < 0 ? *index + size : *index;
      if (at < 0 || at >= size) return std::nullopt;
      return static_cast<std::size_t>(at);
    };
    if (of.list() != nullptr) {
      const std::vector<Value>& items = of.list()->items;
      if (const auto at = position(static_cast<std::int64_t>(items.size()))) return items[*at];
    } else if (of.text() != nullptr) {
      const std::int64_t size = character_count(of.text()->bytes());
      if (const auto at = position(size)) {
        return slice(*of.text(), static_cast<std::int64_t>(*at), static_cast<std::int64_t>(*at) + 1,
                     1);
      }
    }
  }
  return Value::undefined(
      fmt::format("{} has no element {}", owner_name(of), representation(key).bytes()));
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (failed()) return Value();
  if (callee.is_undefined()) return fail(why_undefined(callee));
  if (callee.function() == nullptr) {
    return fail(fmt::format("'{}' object is not callable", type_name(callee)));
  }
  return callee.function()->call(*this, arguments);
}

std::vector<Value> Interpreter::iterate(const Value& value) {
  std::optional<std::vector<Value>> items = items_of(value);
  if (!items) {
    fail(fmt::format("'{}' object is not iterable", type_name(value)));
    return {};
  }
  if (!spend(items->size())) return {};
  return *std::move(items);
}

}  // namespace replayssm::jinja
