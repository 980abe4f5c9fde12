#include "text/jinja/objects.h"

#include "text/jinja/interpreter.h"

namespace replayssm::jinja {

Value Namespace::attribute(std::string_view name) const {
  const Value* value = values_.find(name);
  return value == nullptr ? Value() : *value;
}

bool Namespace::assign(std::string_view name, const Value& value) {
  values_.set(OriginText(std::string(name), true), value);
  return true;
}

Value Loop::attribute(std::string_view name) const {
  const auto index = static_cast<std::int64_t>(index_);
  const auto length = static_cast<std::int64_t>(items_.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index_ == 0;
  if (name == "last") return index_ + 1 == items_.size();
  if (name == "length") return length;
  // These count recursive loops alone, as in jinja2, and there are none.
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem") {
    return index_ > 0 ? items_[index_ - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index_ + 1 < items_.size() ? items_[index_ + 1]
                                      : Value::undefined("there is no next item");
  }
  if (name == "cycle") return cycle();
  if (name == "changed") return changed();
  return Value();
}

Value Loop::cycle() const {
  return std::make_shared<const Function>(
      Function{"cycle", [index = index_](Interpreter& interpreter, const Arguments& arguments) {
                 if (arguments.positional.empty())
                   return interpreter.fail("no items for cycling given");
                 return arguments.positional[index % arguments.positional.size()];
               }});
}

Value Loop::changed() const {
  return std::make_shared<const Function>(
      Function{"changed", [last = last_changed_](Interpreter&, const Arguments& arguments) {
                 Value now = Value::list(arguments.positional, /*tuple=*/true);
                 const bool same = !last->is_undefined() && equal(*last, now);
                 if (!same) *last = std::move(now);
                 return Value(!same);
               }});
}

}  // namespace replayssm::jinja
