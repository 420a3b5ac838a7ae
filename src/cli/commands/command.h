// The commands of the binary: one file each, one table (commands.cc).
//
// A command adds its options to `app` and returns its body, which runs after the command line has
// been parsed. The body's status determines the exit code: OK is 0; an error is one sentence on
// stderr and 1, or the code given by WithExitCode. The parser handles wrong usage: 2.
#ifndef WEFT_CLI_COMMANDS_COMMAND_H_
#define WEFT_CLI_COMMANDS_COMMAND_H_

#include <functional>
#include <span>

#include "CLI/CLI.hpp"
#include "base/status.h"

namespace weft::cli {

using CommandBody = std::function<Status()>;

struct Command {
  const char* name;
  const char* summary;
  CommandBody (*make)(CLI::App* app);
};

std::span<const Command> Commands();

// An error that ends the program with its own exit code.
Status WithExitCode(Status status, int code);
int ExitCodeOf(const Status& status);

CommandBody MakeRunCommand(CLI::App* app);
CommandBody MakeChatCommand(CLI::App* app);
CommandBody MakeServeCommand(CLI::App* app);
CommandBody MakeSessionsCommand(CLI::App* app);
CommandBody MakeBenchCommand(CLI::App* app);
CommandBody MakePsCommand(CLI::App* app);
CommandBody MakeDevicesCommand(CLI::App* app);
CommandBody MakePullCommand(CLI::App* app);
CommandBody MakeListCommand(CLI::App* app);
CommandBody MakeShowCommand(CLI::App* app);
CommandBody MakeRmCommand(CLI::App* app);
CommandBody MakeInspectCommand(CLI::App* app);
CommandBody MakeWorkerCommand(CLI::App* app);
CommandBody MakeConstrainCommand(CLI::App* app);
CommandBody MakeTokenizeCommand(CLI::App* app);
CommandBody MakeDetokenizeCommand(CLI::App* app);
CommandBody MakeLogitsCommand(CLI::App* app);
CommandBody MakeEmbedCommand(CLI::App* app);
CommandBody MakeScoreCommand(CLI::App* app);
CommandBody MakeTemplateCommand(CLI::App* app);
CommandBody MakeCompletionCommand(CLI::App* app);
CommandBody MakeManualCommand(CLI::App* app);

}  // namespace weft::cli

#endif  // WEFT_CLI_COMMANDS_COMMAND_H_
