// Python's operations on text, counted in characters, with the origin of every byte kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/origin_text.h"

namespace replayssm::jinja {

// All arguments are valid UTF-8.

std::int64_t character_count(std::string_view text);
std::vector<OriginText> characters_of(const OriginText& text);

// text[start:stop:step] of Python; `step` is not 0.
OriginText slice(const OriginText& text, std::optional<std::int64_t> start,
                 std::optional<std::int64_t> stop, std::int64_t step);

// The positions that a slice of `size` items takes, in its order. `step` is not 0.
std::vector<std::size_t> slice_positions(std::size_t size, std::optional<std::int64_t> start,
                                         std::optional<std::int64_t> stop, std::int64_t step);

enum class Side { left, right, both };
// Without `characters`: white space.
OriginText strip(const OriginText& text, Side side, std::optional<std::string_view> characters);

// At most `most` cuts, all of them where it is negative. Without `separator`: at runs of white
// space, and no empty pieces. `separator` is not empty.
std::vector<OriginText> split(const OriginText& text, std::optional<std::string_view> separator,
                              std::int64_t most);
std::vector<OriginText> split_from_right(const OriginText& text,
                                         std::optional<std::string_view> separator,
                                         std::int64_t most);
std::vector<OriginText> split_lines(const OriginText& text, bool keep_ends);

// The first `most` occurrences of `from`, all of them where it is negative. An empty `from` is
// found between all characters and at both ends.
OriginText replace(const OriginText& text, std::string_view from, const OriginText& to,
                   std::int64_t most);

// Case by simple mappings: one character becomes one, except that the capital of U+00DF is "SS".
OriginText upper(const OriginText& text);
OriginText lower(const OriginText& text);
OriginText capitalize(const OriginText& text);  // the first character upper, the rest lower
OriginText title(const OriginText& text);       // so each run of letters, as str.title()

// The quoted and escaped text, as Python's repr().
OriginText quoted(const OriginText& text);

}  // namespace replayssm::jinja
