// Messages about the command line itself: the layout of --help, and the sentence about a wrong
// command line. Any thread.
#ifndef WEFT_CLI_HELP_USAGE_H_
#define WEFT_CLI_HELP_USAGE_H_

#include <string>

#include "CLI/CLI.hpp"

namespace weft::cli {

// Shows each option with its value and default, followed by its description, in lines that fit the
// window.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
};

// A message with the mistake, the probable intention, and the --help to consult. `app` is the
// program whose parsing threw `error`.
std::string UsageSentence(const CLI::App& app, const CLI::ParseError& error);

}  // namespace weft::cli

#endif  // WEFT_CLI_HELP_USAGE_H_
