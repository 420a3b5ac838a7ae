#include "cli/output.h"

#include <cerrno>
#include <cstdio>

#include "nlohmann/json.hpp"

namespace weft::cli {

void PrintText(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void PrintLine(std::string_view line) {
  PrintText(line);
  std::fputc('\n', stdout);
}

void PrintJsonLine(const nlohmann::json& value) {
  PrintLine(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

Status FlushStdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return ErrnoStatus(errno, "cannot write to stdout");
  }
  return OkStatus();
}

}  // namespace weft::cli
