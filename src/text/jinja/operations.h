// Python's operators on values.
#pragma once

#include "core/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace replayssm::jinja {

// No text, and no list by "*", may grow beyond this: a template cannot exhaust the memory.
inline constexpr std::size_t kLargestText = std::size_t{64} << 20;
inline constexpr std::size_t kLargestList = std::size_t{1} << 20;

// Errors are Python's words, "unsupported operand type(s) for +: 'int' and 'str'". Integers that
// leave 64 bits are errors.
Result<Value> arithmetic(ArithmeticSign sign, const Value& left, const Value& right);
Result<bool> compare(ComparisonSign sign, const Value& left, const Value& right);

// left < right, for sorting.
Result<bool> is_less(const Value& left, const Value& right);

// `format` % `arguments`: %s %r %d %i %f %e %g %x %o and %%, with flags, width and precision.
Result<OriginText> percent_format(const OriginText& format, const Value& arguments);

}  // namespace replayssm::jinja
