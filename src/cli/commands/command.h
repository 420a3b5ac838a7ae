// The commands of the binary: one file each, one table (commands.cc).
//
// A command adds its options to `app` and returns its body, which runs after the command line has
// been parsed. The body's status determines the exit code: OK is 0; an error is one sentence on
// stderr and 1, or the code given by WithExitCode. The parser handles wrong usage: 2.
#ifndef WEFT_CLI_COMMANDS_COMMAND_H_
#define WEFT_CLI_COMMANDS_COMMAND_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"

namespace weft::cli {

using CommandBody = std::function<Status()>;

struct Command {
  const char* name;
  const char* summary;
  CommandBody (*make)(CLI::App* app);
  bool passes_words_on = false;  // those after -- are another program's, and are not parsed
};

std::span<const Command> Commands();

// An error that ends the program with its own exit code.
Status WithExitCode(Status status, int code);
// Ends the program with a code other than 0 and without a sentence: somebody else has said why.
Status SilentExit(int code);
int ExitCodeOf(const Status& status);

// How the program was called; filled before a body runs.
struct Invocation {
  std::string program;                 // its file, or a name to be found on PATH
  std::vector<std::string> passed_on;  // see Command::passes_words_on
};
Invocation& TheInvocation();

CommandBody MakeRunCommand(CLI::App* app);
CommandBody MakeChatCommand(CLI::App* app);
CommandBody MakeServeCommand(CLI::App* app);
CommandBody MakeLaunchCommand(CLI::App* app);
CommandBody MakeSessionsCommand(CLI::App* app);
CommandBody MakeWhyCommand(CLI::App* app);
CommandBody MakeBenchCommand(CLI::App* app);
CommandBody MakePsCommand(CLI::App* app);
CommandBody MakeTopCommand(CLI::App* app);
CommandBody MakeDevicesCommand(CLI::App* app);
CommandBody MakePullCommand(CLI::App* app);
CommandBody MakeListCommand(CLI::App* app);
CommandBody MakeModelsCommand(CLI::App* app);
CommandBody MakeShowCommand(CLI::App* app);
CommandBody MakeRmCommand(CLI::App* app);
CommandBody MakeInspectCommand(CLI::App* app);
CommandBody MakeWorkerCommand(CLI::App* app);
CommandBody MakeConstrainCommand(CLI::App* app);
CommandBody MakeTokenizeCommand(CLI::App* app);
CommandBody MakeDetokenizeCommand(CLI::App* app);
CommandBody MakeImatrixCommand(CLI::App* app);
CommandBody MakeLogitsCommand(CLI::App* app);
CommandBody MakeEmbedCommand(CLI::App* app);
CommandBody MakeScoreCommand(CLI::App* app);
CommandBody MakeTemplateCommand(CLI::App* app);
CommandBody MakeCompletionCommand(CLI::App* app);
CommandBody MakeManualCommand(CLI::App* app);

}  // namespace weft::cli

#endif  // WEFT_CLI_COMMANDS_COMMAND_H_
