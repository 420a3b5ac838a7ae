// weft list: the models on this machine.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/flags/model_finder.h"
#include "cli/terminal/output.h"
#include "hub/local_models.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

struct ListFlags {
  std::string name;
  std::string models_folder;
  bool json = false;
};

struct ModelRow {
  hub::LocalModel model;
  StatusOr<ModelFacts> facts;
};

void PrintModelJson(const ModelRow& row) {
  const hub::LocalModel& model = row.model;
  nlohmann::json json = {{"name", model.name},
                         {"where", hub::NameOf(model.owner)},
                         {"path", model.path},
                         {"bytes", model.n_bytes}};
  if (row.facts.ok()) {
    json["architecture"] = row.facts->architecture;
    json["quantization"] = row.facts->quantization;
    json["context_tokens"] = row.facts->context_tokens;
    json["parameters"] = row.facts->n_parameters;
  } else {
    json["error"] = Message(row.facts.status());
  }
  PrintJsonLine(json);
}

std::vector<std::string> CellsOf(const ModelRow& row) {
  const std::string size = HumanBytes(static_cast<uint64_t>(row.model.n_bytes));
  const std::string name = Printable(row.model.name, 100);
  const std::string where(hub::NameOf(row.model.owner));
  // 'weft show' gives the reason.
  if (!row.facts.ok()) return {name, "(cannot be read)", "", size, "", where};
  return {name, Printable(row.facts->architecture, 24), row.facts->quantization,
          size, StrCat(row.facts->context_tokens),      where};
}

Status ListModels(const ListFlags& flags) {
  const ModelFinder finder(flags.models_folder);
  const std::vector<hub::LocalModel> all = hub::ListLocalModels(finder.source().places());
  std::vector<ModelRow> rows;
  for (const size_t i : hub::MatchLocalModels(all, flags.name)) {
    rows.push_back({all[i], hub::ReadModelFacts(all[i].path)});
  }
  if (flags.json) {
    for (const ModelRow& row : rows) PrintModelJson(row);
    return FlushStdout();
  }
  if (rows.empty()) {
    PrintLine(flags.name.empty()
                  ? "no models found; 'weft pull --help' explains how to get one"
                  : StrCat("no local model has ", Printable(flags.name), " in its name"));
    return FlushStdout();
  }
  std::vector<std::vector<std::string>> lines = {
      {"NAME", "ARCHITECTURE", "QUANT", "SIZE", "CONTEXT", "WHERE"}};
  for (const ModelRow& row : rows) lines.push_back(CellsOf(row));
  PrintTable(lines);
  return FlushStdout();
}

}  // namespace

CommandBody MakeListCommand(CLI::App* app) {
  auto flags = std::make_shared<ListFlags>();
  app->add_option("NAME", flags->name, "List only models whose name contains this");
  AddModelsFolderFlag(app, &flags->models_folder);
  app->add_flag("--json", flags->json, "Print one JSON object per model");
  app->footer(
      "\nEvery command accepts these names for -m, or any unique part of one. WHERE says which\n"
      "program's folder the model is in: weft, the hub's cache, llama.cpp, ollama, lm-studio,\n"
      "or the folder of --models-dir (or WEFT_MODELS_DIR).");
  return [flags] { return ListModels(*flags); };
}

}  // namespace weft::cli
