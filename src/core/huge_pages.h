// Large pages for large buffers.
#pragma once

#include <cstddef>

namespace replayssm {

// Asks the system to keep the whole 2 MiB pages within [data, data + bytes) as such, where there
// are any and it does that on request (Linux: transparent huge pages, `madvise`). A thread that
// walks states and records then needs few address translations, which cost most on a virtual
// machine (docs/adr/0004-cpu-state-layout-and-decays.md). A hint: it changes no contents, and a
// system that does not follow it reports nothing. To be called before the memory is first touched.
void prefer_huge_pages(void* data, std::size_t bytes);

}  // namespace replayssm
