// The functions that every template can call.
#include <array>
#include <ctime>

#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/utf8.h"

namespace replayssm::jinja {
namespace {

// As in jinja2's sandbox.
constexpr std::int64_t kLongestRange = 100'000;

Value range(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  std::int64_t values[3] = {0, 0, 1};  // start, stop, step
  for (std::size_t i = 0; i < 3; ++i) {
    if (arguments[i] == nullptr) continue;
    const auto value = arguments[i]->integer();
    if (!value) {
      return interpreter.fail(
          fmt::format("'{}' object cannot be interpreted as an integer", type_name(*arguments[i])));
    }
    values[i] = *value;
  }
  auto [start, stop, step] = values;
  if (arguments[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return interpreter.fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<std::int64_t>(items.size()) == kLongestRange) {
      return interpreter.fail(
          fmt::format("range too big, the maximum size for a range is {}", kLongestRange));
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  interpreter.spend(items.size());
  return Value::list(std::move(items));
}

Value make_namespace(Interpreter&, const Value&, const BoundArguments& arguments) {
  auto made = std::make_shared<Namespace>();
  for (const Value& source : arguments.all().positional) {
    if (source.dict() == nullptr) continue;
    for (const auto& [key, value] : source.dict()->entries()) {
      if (key.text() != nullptr) made->assign(key.text()->bytes(), value);
    }
  }
  for (const auto& [name, value] : arguments.all().named) made->assign(name, value);
  return Value(std::static_pointer_cast<Object>(made));
}

Value make_dict(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  auto made = std::make_shared<Dict>();
  for (const Value& source : arguments.all().positional) {
    if (source.dict() == nullptr) {
      return interpreter.fail(fmt::format("dict() of a '{}' is not supported", type_name(source)));
    }
    for (const auto& [key, value] : source.dict()->entries()) made->set(key, value);
  }
  for (const auto& [name, value] : arguments.all().named) {
    made->set(OriginText(name, /*trusted=*/true), value);
  }
  return Value(std::move(made));
}

Value raise_exception(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  return interpreter.fail(to_text(*arguments[0]).bytes());
}

Value strftime_now(Interpreter& interpreter, const Value&, const BoundArguments& arguments) {
  if (arguments.text(0) == nullptr) return interpreter.fail("strftime_now() expects a text");
  const std::string& format = arguments.text(0)->bytes();
  if (format.empty()) return OriginText();
  const std::time_t now = interpreter.now();
  std::tm parts{};
  localtime_r(&now, &parts);
  // strftime has no length of its own to ask for; every conversion fits into 64 bytes.
  std::string text(64 * format.size(), '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return interpreter.text(OriginText(repaired_utf8(text), false));
}

}  // namespace

std::span<const Builtin> global_functions() {
  static const std::array<Builtin, 5> table = {{
      {"range", {"start", "stop", "step"}, 1, range},
      {"namespace", {"*"}, 0, make_namespace},
      {"dict", {"*"}, 0, make_dict},
      {"raise_exception", {"message"}, 1, raise_exception},
      {"strftime_now", {"format"}, 1, strftime_now},
  }};
  return table;
}

}  // namespace replayssm::jinja
