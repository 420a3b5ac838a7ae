// The files of the page as cmake/EmbedPage.cmake found them in web/dist, for page.cc.
#ifndef WEFT_API_PAGE_PAGE_FILES_H_
#define WEFT_API_PAGE_PAGE_FILES_H_

#include <span>
#include <string_view>

namespace weft::serve {

struct PageFile {
  std::string_view name;    // "index.html", "app.js"
  std::string_view digest;  // of its bytes: hexadecimal digits
  std::string_view bytes;
};

// Constant, there for the life of the process.
std::span<const PageFile> PageFiles();

}  // namespace weft::serve

#endif  // WEFT_API_PAGE_PAGE_FILES_H_
