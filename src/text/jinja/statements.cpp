// The interpreter's statements.
#include "text/jinja/builtin.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/operations.h"

namespace replayssm::jinja {
namespace {

// Puts a value in place for the duration of a block.
template <class T>
class Exchanged {
 public:
  Exchanged(T& place, T value) : place_(place), before_(std::exchange(place, std::move(value))) {}
  ~Exchanged() { place_ = std::move(before_); }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;

 private:
  T& place_;
  T before_;
};

}  // namespace

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const Statement& statement : body) {
    const Level level(*this, statement.line);
    if (failed()) return Flow::leave_loop;
    const Flow flow = std::visit([this](const auto& node) { return run(node); }, statement.node);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

void Interpreter::print(const OriginText& printed) {
  if (out_->size() + printed.size() > kLargestText) {
    fail(fmt::format("more than {} MiB of output", kLargestText >> 20));
    return;
  }
  spend(printed.size() / kTextBytesPerStep);
  out_->append(printed);
}

Interpreter::Flow Interpreter::run(const TextOutput& node) {
  print(node.text);
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Output& node) {
  const Value value = evaluate(*node.value);
  if (!failed()) print(value.text() != nullptr ? *value.text() : to_text(value));
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const If& node) {
  for (const auto& [test, body] : node.branches) {
    if (truth(evaluate(*test))) return run(body);
    if (failed()) return Flow::next;
  }
  return run(node.otherwise);
}

Interpreter::Flow Interpreter::run(const For& node) {
  std::vector<Value> items = iterate(evaluate(*node.items));
  if (node.condition != nullptr) {
    std::vector<Value> chosen;
    for (Value& item : items) {
      const Exchanged<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope_));
      assign(node.target, item);
      if (truth(evaluate(*node.condition))) chosen.push_back(std::move(item));
      if (failed()) break;
    }
    items = std::move(chosen);
  }
  if (items.empty()) return run(node.otherwise);

  const auto loop = std::make_shared<Loop>(std::move(items));
  for (std::size_t i = 0; i < loop->items().size() && !failed(); ++i) {
    const Exchanged<std::shared_ptr<Scope>> pass(scope_, std::make_shared<Scope>(scope_));
    loop->move_to(i);
    scope_->set("loop", Value(std::static_pointer_cast<Object>(loop)));
    assign(node.target, loop->items()[i]);
    if (run(node.body) == Flow::leave_loop) break;
  }
  return Flow::next;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (failed()) return;
  if (!target.attribute.empty()) {
    const Value* owner = scope_->find(target.names[0]);
    if (owner == nullptr || owner->object() == nullptr ||
        !owner->object()->assign(target.attribute, value)) {
      fail("cannot assign attribute on non-namespace object");
    }
    return;
  }
  if (!target.unpack) {
    scope_->set(target.names[0], value);
    return;
  }
  const std::vector<Value> items = iterate(value);
  if (failed()) return;
  if (items.size() != target.names.size()) {
    fail(fmt::format("cannot unpack {} values into {} names", items.size(), target.names.size()));
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) scope_->set(target.names[i], items[i]);
}

Interpreter::Flow Interpreter::run(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::next;
}

Value Interpreter::captured(const Body& body) {
  OriginText printed;
  const Exchanged<OriginText*> output(out_, &printed);
  const Exchanged<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope_));
  run(body);
  return failed() ? Value() : text(std::move(printed));
}

Value Interpreter::filtered(Value value, const std::vector<ExpressionPtr>& filters) {
  for (const ExpressionPtr& expression : filters) {
    const auto& use = std::get<FilterUse>(expression->node);
    const Arguments arguments = evaluate(use.arguments);
    if (failed()) return Value();
    value = run_builtin(*this, *use.filter, value, arguments);
  }
  return value;
}

Interpreter::Flow Interpreter::run(const SetBlock& node) {
  assign(node.target, filtered(captured(node.body), node.filters));
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const FilterBlock& node) {
  const Value value = filtered(captured(node.body), node.filters);
  if (!failed()) print(to_text(value));
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const With& node) {
  // The values belong to the scope around the block.
  std::vector<Value> values;
  for (const Set& assignment : node.assignments) values.push_back(evaluate(*assignment.value));
  const Exchanged<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].target, values[i]);
  return run(node.body);
}

Interpreter::Flow Interpreter::run(const MacroDefinition& node) {
  scope_->set(node.name, macro(node));
  return Flow::next;
}

Value Interpreter::macro(const MacroDefinition& definition) {
  // Weak: the scope holds the macro. A macro that has left the scope it was defined in is an error.
  const std::weak_ptr<const Scope> around = scope_;
  return std::make_shared<const Function>(Function{
      definition.name,
      [&definition, around](Interpreter& interpreter, const Arguments& arguments) -> Value {
        std::shared_ptr<const Scope> scope = around.lock();
        if (scope == nullptr) {
          return interpreter.fail(fmt::format(
              "macro '{}' is called outside of the block it belongs to", definition.name));
        }
        return interpreter.call_macro(definition, std::move(scope), arguments);
      }});
}

Value Interpreter::call_macro(const MacroDefinition& definition,
                              std::shared_ptr<const Scope> around, const Arguments& arguments) {
  const std::vector<Parameter>& parameters = definition.parameters;
  if (arguments.positional.size() > parameters.size()) {
    return fail(fmt::format("macro '{}' takes not more than {} argument(s)", definition.name,
                            parameters.size()));
  }
  std::vector<const Value*> passed(parameters.size(), nullptr);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    passed[i] = &arguments.positional[i];
  }
  const Exchanged<std::shared_ptr<Scope>> inner(scope_, std::make_shared<Scope>(around));
  for (const auto& [name, value] : arguments.named) {
    std::size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i < parameters.size() && passed[i] == nullptr) {
      passed[i] = &value;
    } else if (i == parameters.size() && name == "caller") {
      scope_->set(name, value);
    } else {
      return fail(fmt::format("macro '{}' takes no keyword argument '{}'", definition.name, name));
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    scope_->set(parameter.name, passed[i] != nullptr ? *passed[i]
                                : parameter.otherwise != nullptr
                                    ? evaluate(*parameter.otherwise)
                                    : Value::undefined(fmt::format(
                                          "parameter '{}' was not provided", parameter.name)));
  }
  OriginText printed;
  const Exchanged<OriginText*> output(out_, &printed);
  run(definition.body);
  return failed() ? Value() : text(std::move(printed));
}

Interpreter::Flow Interpreter::run(const CallBlock& node) {
  const auto& call_node = std::get<Call>(node.call->node);
  const Value callee = evaluate(*call_node.callee);
  Arguments arguments = evaluate(call_node.arguments);
  arguments.named.emplace_back("caller", macro(node.caller));
  const Value value = call(callee, arguments);
  if (!failed()) print(to_text(value));
  return Flow::next;
}

}  // namespace replayssm::jinja
