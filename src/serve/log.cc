#include "serve/log.h"

#include <cstdio>
#include <ctime>
#include <string>

#include "base/strings.h"

namespace weft::serve {

void LogLine(std::string_view line) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc = {};
  gmtime_r(&now.tv_sec, &utc);
  char time[40];
  const size_t size = std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
  char fraction[8];
  std::snprintf(fraction, sizeof(fraction), ".%03dZ ", static_cast<int>(now.tv_nsec / 1'000'000));
  const std::string whole = StrCat(std::string_view(time, size), fraction, line, "\n");
  // stderr has no buffer: one write.
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

}  // namespace weft::serve
