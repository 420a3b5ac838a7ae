// The names, commands and options of the program, read from the parser's own tables. The manual
// page and the completions are generated from it, so they always agree with --help. Pure functions;
// any thread.
#ifndef WEFT_CLI_HELP_COMMAND_TREE_H_
#define WEFT_CLI_HELP_COMMAND_TREE_H_

#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"

namespace weft::cli {

struct OptionInfo {
  // As typed, short ones first: "-m", "--model". Empty for positional arguments.
  std::vector<std::string> names;
  std::string value;                 // type of the value, such as "TEXT" or "IDS"; empty for a flag
  std::vector<std::string> choices;  // all accepted values; empty: any
  std::string help;
  std::string default_value;  // as text; empty: none worth showing
  bool is_required = false;
  bool may_repeat = false;
  bool is_text = false;  // so it might be a file name
};

struct CommandInfo {
  std::string path;     // "weft sessions fork"
  std::string name;     // "fork"
  std::string summary;  // one line
  std::string footer;   // paragraphs; indented lines are examples
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

OptionInfo DescribeOption(const CLI::Option& option);
CommandInfo DescribeCommand(const CLI::App& app);

// The command and all its descendants, parents first.
std::vector<const CommandInfo*> AllCommands(const CommandInfo& root);

// Completion scripts for the commands of `root`, one function per shell.
std::string BashCompletion(const CommandInfo& root);
std::string ZshCompletion(const CommandInfo& root);
std::string FishCompletion(const CommandInfo& root);

// The manual page, in man(7) macros.
std::string ManualPage(const CommandInfo& root, std::string_view version);

}  // namespace weft::cli

#endif  // WEFT_CLI_HELP_COMMAND_TREE_H_
