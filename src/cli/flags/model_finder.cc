#include "cli/flags/model_finder.h"

#include <unistd.h>

#include <utility>

namespace weft::cli {
namespace {

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

hub::Places PlacesWith(const std::string& models_folder) {
  hub::Places places = hub::ProcessPlaces();
  if (!models_folder.empty()) places.models_folder = models_folder;
  return places;
}

hub::LoadHooks HooksWith(PullMeter* meter) {
  hub::LoadHooks hooks = hub::LoadHooks::Default();
  hooks.progress = [meter](const hub::Progress& progress) { meter->Show(progress); };
  if (StderrIsTerminal()) hooks.tool_output = STDERR_FILENO;
  return hooks;
}

}  // namespace

ModelFinder::ModelFinder(const std::string& models_folder)
    : meter_(StderrIsTerminal()), source_(PlacesWith(models_folder), HooksWith(&meter_)) {}

StatusOr<std::string> ModelFinder::Find(const std::string& what) {
  auto path = source_.Find(what);
  meter_.End();
  return path;
}

StatusOr<std::string> ModelFinder::Pull(const std::string& what) {
  auto path = source_.Pull(what);
  meter_.End();
  return path;
}

void AddModelsFolderFlag(CLI::App* app, std::string* folder) {
  app->add_option("--models-dir", *folder,
                  "A folder with models, searched by name in addition to the cache of the Hugging "
                  "Face Hub, llama.cpp, Ollama and LM Studio");
}

}  // namespace weft::cli
