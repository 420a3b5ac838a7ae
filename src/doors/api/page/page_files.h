// The page's files as collected from web/dist by cmake/EmbedPage.cmake, for page.cc.
#ifndef WEFT_DOORS_API_PAGE_PAGE_FILES_H_
#define WEFT_DOORS_API_PAGE_PAGE_FILES_H_

#include <span>
#include <string_view>

namespace weft::serve {

struct PageFile {
  std::string_view name;    // "index.html", "app.js"
  std::string_view digest;  // hash of its bytes, in hexadecimal
  std::string_view bytes;
};

// Constant; lives as long as the process.
std::span<const PageFile> PageFiles();

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_PAGE_PAGE_FILES_H_
