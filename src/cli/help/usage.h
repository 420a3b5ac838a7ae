// What a person reads of the command line itself: the layout of --help, and the sentence
// about a command line that is wrong. Any thread.
#ifndef WEFT_CLI_HELP_USAGE_H_
#define WEFT_CLI_HELP_USAGE_H_

#include <string>

#include "CLI/CLI.hpp"

namespace weft::cli {

// Each option with what it takes and its default, and behind it its description, in lines
// that a terminal need not break.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

// What was wrong, what was perhaps meant, and which --help has the rest. `app` is the
// program whose parse has thrown `error`.
std::string UsageSentence(const CLI::App& app, const CLI::ParseError& error);

}  // namespace weft::cli

#endif  // WEFT_CLI_HELP_USAGE_H_
