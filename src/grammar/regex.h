// Regular expressions of JSON schemas ("pattern" and the formats made of them), as pieces of a
// program that write the matching strings.
#pragma once

#include <string_view>
#include <vector>

#include "core/result.h"
#include "grammar/program_builder.h"

namespace replayssm::grammar {

// The inside of a JSON string (without its quotes) whose value matches `pattern`, then `next`.
//
// Accepted: characters, `.`, classes with ranges and negation, \d \w \s \D \W \S, \t \n \r \f \v
// \0, \xHH, \uHHHH, escaped punctuation, groups, `|`, * + ? {m} {m,} {m,n} (lazy forms too; they
// match the same strings), `^` at the beginning and `$` at the end of an alternative of the whole
// pattern. As ECMA-262 has it, a pattern without anchors may match anywhere in the string. \s
// writes ASCII white space only. Everything else is refused by name: look-around, back references,
// word boundaries, \p, flags, anchors elsewhere.
//
// Characters are written raw where JSON allows it, otherwise in their shortest escape.
Result<NodeId> build_pattern(ProgramBuilder& builder, std::string_view pattern, NodeId next);

// One character of the ranges inside a JSON string, written as above. Nothing if there is none.
std::optional<NodeId> string_character(ProgramBuilder& builder, std::vector<CodeRange> ranges,
                                       NodeId next);

// The ranges sorted and merged / every other code point.
std::vector<CodeRange> normalized(std::vector<CodeRange> ranges);
std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges);

}  // namespace replayssm::grammar
