// Where the tests find the files of this repository.
#pragma once

#include <filesystem>

namespace replayssm {

// The root of the source tree. One translation unit knows it, so that the objects of all tests are
// the same in every checkout and ccache shares them.
std::filesystem::path source_dir();

}  // namespace replayssm
