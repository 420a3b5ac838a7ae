// weft pull: downloads a model.
#include <memory>
#include <string>

#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/flags/model_finder.h"
#include "cli/terminal/output.h"
#include "model/hub/files.h"
#include "model/hub/names/catalogue.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

struct PullFlags {
  std::string what;
  bool json = false;
};

Status PullModel(const PullFlags& flags) {
  ModelFinder finder("");
  WEFT_ASSIGN_OR_RETURN(const std::string path, finder.Pull(flags.what));
  if (flags.json) {
    PrintJsonLine({{"name", flags.what}, {"path", path}, {"bytes", hub::FileBytes(path)}});
  } else {
    PrintLine(path);
  }
  return FlushStdout();
}

std::string CatalogueLines() {
  std::string lines;
  for (const hub::CatalogueEntry& entry : hub::Catalogue()) {
    StrAppend(&lines, "  weft pull ", entry.name, "    # ", entry.about, ", ",
              HumanBytes(static_cast<uint64_t>(entry.n_bytes)), ", ", entry.license, "\n");
  }
  return lines;
}

}  // namespace

CommandBody MakePullCommand(CLI::App* app) {
  auto flags = std::make_shared<PullFlags>();
  app->add_option("WHAT", flags->what, "The model; see below")->required();
  app->add_flag("--json", flags->json, "Print one JSON object: name, path, bytes");
  app->footer(StrCat(
      "\nPrints the path of the file. Every command accepts the same names for -m, and downloads\n"
      "a model that is not here yet. Without a quantization, takes Q4_K_M, else Q4_0, else the\n"
      "first. Interrupted downloads are resumed. Files from the Hugging Face Hub are stored in\n"
      "the cache of its own tools (HF_HOME, HF_HUB_CACHE), others below ~/.cache/weft\n"
      "(WEFT_CACHE). HF_TOKEN gives access to private models, HF_ENDPOINT selects another hub,\n"
      "HF_HUB_OFFLINE=1 disables downloads.\n\n"
      "Examples:\n",
      CatalogueLines(),
      "  weft pull bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0\n"
      "  weft pull ollama:qwen3:0.6b\n"
      "  weft pull https://example.com/model.gguf#sha256=..."));
  return [flags] { return PullModel(*flags); };
}

}  // namespace weft::cli
