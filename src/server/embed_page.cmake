# cmake -DPAGE=index.html -DSOURCE=page_bytes.cpp -P embed_page.cmake: a file as a C++ array.
file(READ ${PAGE} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${SOURCE} "#include <cstddef>
namespace replayssm::server {
extern const unsigned char kPageBytes[];
extern const std::size_t kPageSize;
const unsigned char kPageBytes[] = {${bytes}};
const std::size_t kPageSize = sizeof(kPageBytes);
}  // namespace replayssm::server
")
