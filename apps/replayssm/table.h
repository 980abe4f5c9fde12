// Tables for people.
#pragma once

#include <string>
#include <vector>

namespace replayssm::cli {

// Columns padded to their widest cell, two spaces apart, under a line of dashes. Rows may be
// shorter than the header. `right_aligned`: the columns to align right.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows,
                         const std::vector<std::size_t>& right_aligned = {});

}  // namespace replayssm::cli
