// An option for a duration: 90s, 15m, 12h, 7d, or seconds.
#ifndef WEFT_CLI_FLAGS_DURATION_FLAG_H_
#define WEFT_CLI_FLAGS_DURATION_FLAG_H_

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"

namespace weft::cli {

// `seconds` keeps its value if the option is absent; otherwise it is at least 1.
CLI::Option* AddDurationFlag(CLI::App* app, const std::string& name, int64_t* seconds,
                             const std::string& help);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_DURATION_FLAG_H_
