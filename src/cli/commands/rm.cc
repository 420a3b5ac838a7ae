// weft rm: removes a downloaded model.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/flags/model_finder.h"
#include "cli/terminal/output.h"
#include "model/hub/remove_model.h"

namespace weft::cli {
namespace {

struct RemoveFlags {
  std::string name;
  bool yes = false;
};

StatusOr<bool> Ask(const std::string& question) {
  if (isatty(STDIN_FILENO) != 1) {
    return FailedPrecondition("cannot ask for confirmation without a terminal: use --yes");
  }
  std::fprintf(stderr, "%s [y/N] ", question.c_str());
  const int c = std::getchar();
  return c == 'y' || c == 'Y';
}

Status Remove(const RemoveFlags& flags) {
  const ModelFinder finder("");
  WEFT_ASSIGN_OR_RETURN(const hub::LocalModel model,
                        hub::FindToRemove(finder.source(), flags.name));
  if (!flags.yes) {
    WEFT_ASSIGN_OR_RETURN(const bool yes,
                          Ask(StrCat("remove ", Printable(model.name, 200), " (",
                                     HumanBytes(static_cast<uint64_t>(model.n_bytes)), ", ",
                                     model.owner == hub::Owner::kHub
                                         ? "from the cache that Hugging Face's tools share"
                                         : "from Weft's own folder",
                                     ")?")));
    if (!yes) return Cancelled("nothing was removed");
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t freed, hub::RemoveModel(finder.source().places(), model));
  PrintLine(StrCat(Printable(model.name, 200), " is removed, ",
                   HumanBytes(static_cast<uint64_t>(freed)), " are free"));
  return FlushStdout();
}

}  // namespace

CommandBody MakeRmCommand(CLI::App* app) {
  auto flags = std::make_shared<RemoveFlags>();
  app->add_option("NAME", flags->name, "The model's name, as shown by 'weft list'")->required();
  app->add_flag("--yes,-y", flags->yes, "Do not ask for confirmation");
  app->footer(
      "\nRemoves models from the Hugging Face Hub's cache and Weft's own folder. Never touches\n"
      "files of Ollama, LM Studio or llama.cpp, or files in your own folders.");
  return [flags] { return Remove(*flags); };
}

}  // namespace weft::cli
