// Runs a parsed template.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/scope.h"
#include "text/jinja/value.h"

namespace replayssm::jinja {

// Each evaluated expression or statement is a step, and so are so many bytes of any text made. A
// template that needs more does not end, or might as well not.
inline constexpr std::int64_t kMostSteps = 10'000'000;
inline constexpr std::size_t kTextBytesPerStep = 256;
// Expressions, statements and macro calls inside each other.
inline constexpr int kDeepestEvaluation = 1000;

// One rendering. Not reusable.
//
// The first failure is kept and everything after it is skipped: evaluation returns undefined, loops
// end. So no function below needs a Result, and no exception is thrown.
class Interpreter {
 public:
  // `now` is what strftime_now() formats.
  explicit Interpreter(std::time_t now) : now_(now) {}

  // `body` outlives the interpreter. `variables` are the template's, the last of a name counts.
  Result<OriginText> render(const Body& body, std::vector<std::pair<std::string, Value>> variables);

  // For builtins. fail() returns undefined.
  Value fail(std::string_view message);
  Value fail(const Error& error) { return fail(error.message); }
  bool failed() const { return error_.has_value(); }
  // Accounts for work; false, and failed, once there was too much.
  bool spend(std::size_t steps);
  // A text as a value, its size accounted for.
  Value text(OriginText text);
  std::time_t now() const { return now_; }

  // of.name and of[key]: undefined, with the reason, where there is no such thing.
  Value attribute(const Value& of, std::string_view name);
  Value item(const Value& of, const Value& key);
  Value call(const Value& callee, const Arguments& arguments);
  // Fails where the value cannot be iterated.
  std::vector<Value> iterate(const Value& value);

 private:
  enum class Flow { next, leave_pass, leave_loop };
  class Level;  // guards the depth and keeps the line while something is evaluated

  // expressions.cpp
  Value evaluate(const Expression& expression);
  Value evaluate_optional(const ExpressionPtr& expression);  // undefined where null
  Value visit(const Literal& node) { return node.value; }
  Value visit(const Name& node);
  Value visit(const ListLiteral& node);
  Value visit(const DictLiteral& node);
  Value visit(const Attribute& node) { return attribute(evaluate(*node.of), node.name); }
  Value visit(const Subscript& node);
  Value visit(const Slice& node);
  Value visit(const Call& node) { return call(evaluate(*node.callee), evaluate(node.arguments)); }
  Value visit(const FilterUse& node);
  Value visit(const TestUse& node);
  Value visit(const Not& node) { return !truth(evaluate(*node.operand)); }
  Value visit(const Sign& node);
  Value visit(const Arithmetic& node);
  Value visit(const Logical& node);
  Value visit(const Concatenation& node);
  Value visit(const Comparison& node);
  Value visit(const Conditional& node);
  Arguments evaluate(const ArgumentList& list);
  std::optional<std::int64_t> slice_bound(const ExpressionPtr& expression);

  // statements.cpp
  Flow run(const Body& body);
  Flow run(const TextOutput& node);
  Flow run(const Output& node);
  Flow run(const If& node);
  Flow run(const For& node);
  Flow run(const Set& node);
  Flow run(const SetBlock& node);
  Flow run(const MacroDefinition& node);
  Flow run(const CallBlock& node);
  Flow run(const FilterBlock& node);
  Flow run(const With& node);
  Flow run(const Break&) { return Flow::leave_loop; }
  Flow run(const Continue&) { return Flow::leave_pass; }
  void assign(const Target& target, const Value& value);
  void print(const OriginText& text);
  // What `body` prints, as a value.
  Value captured(const Body& body);
  Value filtered(Value value, const std::vector<ExpressionPtr>& filters);
  Value macro(const MacroDefinition& definition);
  Value call_macro(const MacroDefinition& definition, std::shared_ptr<const Scope> around,
                   const Arguments& arguments);

  std::time_t now_;
  std::shared_ptr<Scope> scope_;
  OriginText* out_ = nullptr;
  std::optional<Error> error_;
  std::int64_t steps_ = 0;
  int depth_ = 0;
  int line_ = 1;
};

// What keeps one evaluation within its limits.
class Interpreter::Level {
 public:
  Level(Interpreter& interpreter, int line)
      : interpreter_(interpreter), line_(std::exchange(interpreter.line_, line)) {
    interpreter_.spend(1);
    if (++interpreter_.depth_ > kDeepestEvaluation) {
      interpreter_.fail(fmt::format("recursion deeper than {} levels", kDeepestEvaluation));
    }
  }
  ~Level() {
    --interpreter_.depth_;
    interpreter_.line_ = line_;
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
  int line_;
};

}  // namespace replayssm::jinja
