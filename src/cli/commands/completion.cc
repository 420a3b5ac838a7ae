// weft completion and weft manual: the program's own command tables, for shells and for man.
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/help/command_tree.h"
#include "cli/help/version.h"
#include "cli/terminal/output.h"

namespace weft::cli {

CommandBody MakeCompletionCommand(CLI::App* app) {
  auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "Which shell")
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish"}))
      ->required();
  app->footer(
      "\n'make install' and the package install these for the shells. Without them:\n"
      "  bash: source <(weft completion bash)\n"
      "  zsh:  source <(weft completion zsh)\n"
      "  fish: weft completion fish | source");
  return [app, shell] {
    const CommandInfo root = DescribeCommand(*app->get_parent());
    if (*shell == "bash") PrintText(BashCompletion(root));
    if (*shell == "zsh") PrintText(ZshCompletion(root));
    if (*shell == "fish") PrintText(FishCompletion(root));
    return FlushStdout();
  };
}

CommandBody MakeManualCommand(CLI::App* app) {
  app->footer("\nExample:\n  weft manual | man -l -");
  return [app] {
    PrintText(ManualPage(DescribeCommand(*app->get_parent()), kVersion));
    return FlushStdout();
  };
}

}  // namespace weft::cli
