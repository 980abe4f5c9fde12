# cmake -DPAGE=index.html -DSOURCE=page_bytes.cpp -P embed_page.cmake: the page as a C++ array. Style
# sheets and scripts that it names are put into it, so that what is served is one file.
get_filename_component(folder ${PAGE} DIRECTORY)
file(READ ${PAGE} bytes HEX)

# Puts the file between two tags in the place of `tag`. All in hexadecimal digits, because CMake gives
# brackets, semicolons and backslashes in text a meaning.
function(put_in tag before file after)
  string(HEX "${tag}" tag_hex)
  string(HEX "${before}" before_hex)
  string(HEX "${after}" after_hex)
  string(FIND "${bytes}" "${tag_hex}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "embed_page.cmake: ${PAGE} has no ${tag}")
  endif()
  file(READ ${folder}/${file} content HEX)
  string(REPLACE "${tag_hex}" "${before_hex}${content}${after_hex}" bytes "${bytes}")
  set(bytes "${bytes}" PARENT_SCOPE)
endfunction()

file(STRINGS ${PAGE} sheets REGEX "<link rel=\"stylesheet\" href=\"[a-z_]+\\.css\">")
foreach(tag IN LISTS sheets)
  string(REGEX REPLACE ".*href=\"([a-z_]+\\.css)\".*" "\\1" file "${tag}")
  put_in("<link rel=\"stylesheet\" href=\"${file}\">" "<style>" ${file} "</style>")
endforeach()
file(STRINGS ${PAGE} scripts REGEX "<script src=\"[a-z_]+\\.js\"></script>")
foreach(tag IN LISTS scripts)
  string(REGEX REPLACE ".*src=\"([a-z_]+\\.js)\".*" "\\1" file "${tag}")
  put_in("<script src=\"${file}\"></script>" "<script>" ${file} "</script>")
endforeach()

string(LENGTH "${bytes}" digits)
if(digits GREATER 204800)
  message(FATAL_ERROR "embed_page.cmake: the page has ${digits}/2 bytes; expected at most 102400")
endif()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${SOURCE} "#include <cstddef>
namespace replayssm::server {
extern const unsigned char kPageBytes[];
extern const std::size_t kPageSize;
const unsigned char kPageBytes[] = {${bytes}};
const std::size_t kPageSize = sizeof(kPageBytes);
}  // namespace replayssm::server
")
