// weft rm: removes a downloaded model, or all packed copies.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/flags/model_finder.h"
#include "cli/flags/model_removal.h"
#include "cli/terminal/output.h"
#include "compute/cpu/packed_copy.h"
#include "model/hub/places.h"
#include "model/hub/remove_model.h"

namespace weft::cli {
namespace {

struct RemoveFlags {
  std::string name;
  bool yes = false;
  bool packed = false;
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
  WEFT_ASSIGN_OR_RETURN(const int64_t freed, RemoveModelAndCopy(finder.source().places(), model));
  PrintLine(StrCat(Printable(model.name, 200), " is removed, ",
                   HumanBytes(static_cast<uint64_t>(freed)), " are free"));
  return FlushStdout();
}

Status RemoveCopies() {
  const std::string folder = hub::ProcessPlaces().packed_copies;
  WEFT_ASSIGN_OR_RETURN(const int64_t freed, cpu::RemovePackedCopies(folder));
  const std::string bytes = HumanBytes(static_cast<uint64_t>(freed));
  PrintLine(freed == 0 ? StrCat("there are no packed copies in ", Printable(folder, 300))
                       : StrCat("the packed copies in ", Printable(folder, 300), " are removed, ",
                                bytes, " are free"));
  return FlushStdout();
}

}  // namespace

CommandBody MakeRmCommand(CLI::App* app) {
  auto flags = std::make_shared<RemoveFlags>();
  CLI::Option* const name =
      app->add_option("NAME", flags->name, "The model's name, as shown by 'weft list'");
  CLI::Option* const packed =
      app->add_flag("--packed", flags->packed,
                    "Remove all packed copies of weights (--packed-cache) from Weft's own folder, "
                    "without asking: the next starts write them again");
  name->excludes(packed);
  app->parse_complete_callback([name, packed] {
    if (name->count() + packed->count() == 0) throw CLI::RequiredError("NAME");
  });
  app->add_flag("--yes,-y", flags->yes, "Do not ask for confirmation");
  app->footer(
      "\nRemoves models from the Hugging Face Hub's cache and Weft's own folder, with their "
      "packed\n"
      "copies. Never touches files of Ollama, LM Studio or llama.cpp, or files in your "
      "own\nfolders.");
  return [flags] { return flags->packed ? RemoveCopies() : Remove(*flags); };
}

}  // namespace weft::cli
