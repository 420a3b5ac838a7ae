// What the commands are called and take, read from the parser's own tables: what the manual
// page and the completions are made of, so that neither can say anything else than --help.
// Pure functions; any thread.
#ifndef WEFT_CLI_HELP_COMMAND_TREE_H_
#define WEFT_CLI_HELP_COMMAND_TREE_H_

#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"

namespace weft::cli {

struct OptionInfo {
  // As they are typed, the short ones first: "-m", "--model". None for what is told by its
  // place.
  std::vector<std::string> names;
  std::string value;  // what is to be given, such as "TEXT" or "IDS"; empty for a flag
  std::vector<std::string> choices;  // all that may be given; empty: anything
  std::string help;
  std::string default_value;  // as text; empty: none to speak of
  bool is_required = false;
  bool may_repeat = false;
  bool is_text = false;  // and so might be a file's name
};

struct CommandInfo {
  std::string path;     // "weft sessions fork"
  std::string name;     // "fork"
  std::string summary;  // one line
  std::string footer;   // paragraphs; lines that begin with a space are examples
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

OptionInfo DescribeOption(const CLI::Option& option);
CommandInfo DescribeCommand(const CLI::App& app);

// The command itself and all below it, each before its own.
std::vector<const CommandInfo*> AllCommands(const CommandInfo& root);

// Shell scripts that complete the commands of `root`, for these shells.
std::string BashCompletion(const CommandInfo& root);
std::string ZshCompletion(const CommandInfo& root);
std::string FishCompletion(const CommandInfo& root);

// The manual page, in the macros of man(7).
std::string ManualPage(const CommandInfo& root, std::string_view version);

}  // namespace weft::cli

#endif  // WEFT_CLI_HELP_COMMAND_TREE_H_
