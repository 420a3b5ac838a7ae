// Makes a flag of each row of doors/host/server_options.inc.
#ifndef WEFT_CLI_SERVE_SERVER_FLAGS_H_
#define WEFT_CLI_SERVE_SERVER_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>

#include "doors/host/server_options.h"

namespace weft::cli {

enum class OptionUnit { kNone, kBytes, kDuration };

// A row's columns after its member.
struct ServerFlag {
  const char* flag;
  const char* help;
  int64_t min = 0, max = 0;        // for numbers
  bool shows_default = false;      // otherwise the help tells it, or there is none
  const char* needs = nullptr;     // another flag
  const char* excludes = nullptr;  // another flag
  // For a bool that is an option with one of two words: that for true, and that for false. Other
  // bools are flags that negate the default.
  struct Words {
    const char *yes = nullptr, *no = nullptr;
  } words = {};
  OptionUnit unit = OptionUnit::kNone;
  const char* type_name = nullptr;
  char delimiter = 0;      // between the values of a list in one argument
  bool is_folder = false;  // that must exist
};

// `options` must outlive the parsing.
void AddServerFlags(CLI::App* app, serve::ServerOptions* options);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SERVER_FLAGS_H_
