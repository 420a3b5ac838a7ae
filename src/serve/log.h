// Log lines: to stderr, each with the time and written at once, so that lines of several
// threads do not mix. Any thread.
#ifndef WEFT_SERVE_LOG_H_
#define WEFT_SERVE_LOG_H_

#include <string_view>

namespace weft::serve {

// `line` has no line break; what came from outside was made Printable.
void LogLine(std::string_view line);

}  // namespace weft::serve

#endif  // WEFT_SERVE_LOG_H_
