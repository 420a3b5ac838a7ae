// weft list: the models on this machine. weft models: also those that it could run.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "base/system.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/flags/model_finder.h"
#include "cli/terminal/output.h"
#include "model/hub/local_models.h"
#include "model/hub/names/known_models.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

// A conversation with a coding agent is longer; a question with its answer is shorter.
constexpr int64_t kConversationTokens = 8192;

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

void PrintKnownJson(const hub::KnownModel& model, int64_t n_fit) {
  PrintJsonLine({{"name", model.name},
                 {"use", hub::NameOf(model.use)},
                 {"about", model.about},
                 {"bytes", model.file_bytes()},
                 {"context_tokens", model.context},
                 {"kv_bytes_per_token", model.kv_bytes_per_token},
                 {"conversations", n_fit},
                 {"license", model.license}});
}

// Two lines that fit 80 columns; more in narrower windows.
void PrintKnown(const hub::KnownModel& model, int64_t n_fit) {
  std::string facts = HumanBytes(static_cast<uint64_t>(model.file_bytes()));
  if (model.use == hub::KnownModel::Use::kEmbeddings) {
    StrAppend(&facts, ", texts of ", model.context, " tokens");
  } else {
    StrAppend(&facts, ", ", n_fit, n_fit == 1 ? " conversation" : " conversations");
  }
  PrintLine(StrCat("  ", model.name));
  PrintWrapped(StrCat("      ", facts, ", ", model.license, ": ", model.about));
}

// What this machine's memory has room for, by use.
Status SuggestModels(const ListFlags& flags) {
  const int64_t free_bytes = FreeHostMemoryBytes();
  if (!flags.json) {
    PrintLine("");
    PrintWrapped(StrCat("With ", HumanBytes(static_cast<uint64_t>(free_bytes)),
                        " of free memory, this computer could run:"));
  }
  const std::string wanted = AsciiLower(flags.name);
  std::optional<hub::KnownModel::Use> use;
  for (const hub::KnownModel& model : hub::KnownModels()) {
    const int64_t n_fit = hub::ConversationsThatFit(model, kConversationTokens, free_bytes);
    if (AsciiLower(model.name).find(wanted) == std::string::npos) continue;
    if (flags.json) {
      PrintKnownJson(model, n_fit);
      continue;
    }
    if (n_fit == 0) continue;
    if (use != model.use) PrintLine(StrCat("\n", hub::NameOf(model.use)));
    use = model.use;
    PrintKnown(model, n_fit);
  }
  if (flags.json) return OkStatus();
  PrintLine("");
  PrintLine(Fill(StrCat("A conversation has ", kConversationTokens,
                        " tokens. 'weft pull NAME' downloads a model. Weft's tests run none of "
                        "these; 'weft pull smollm2' gets a small one that they run."),
                 std::min<size_t>(OutputColumns(), 79)));
  return OkStatus();
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

std::shared_ptr<ListFlags> AddListFlags(CLI::App* app, const char* about_name) {
  auto flags = std::make_shared<ListFlags>();
  app->add_option("NAME", flags->name, about_name);
  AddModelsFolderFlag(app, &flags->models_folder);
  app->add_flag("--json", flags->json, "Print one JSON object per model");
  return flags;
}

}  // namespace

CommandBody MakeModelsCommand(CLI::App* app) {
  const auto flags = AddListFlags(app, "Only models whose name contains this");
  app->footer(
      "\nLists the models on this computer, then well-known ones on the Hugging Face Hub for\n"
      "which it has memory now: what they are good for, their size and context, how many\n"
      "conversations fit next to them, and their license.");
  return [flags]() -> Status {
    WEFT_RETURN_IF_ERROR(ListModels(*flags));
    WEFT_RETURN_IF_ERROR(SuggestModels(*flags));
    return FlushStdout();
  };
}

CommandBody MakeListCommand(CLI::App* app) {
  const auto flags = AddListFlags(app, "List only models whose name contains this");
  app->footer(
      "\nEvery command accepts these names for -m, or any unique part of one. WHERE says which\n"
      "program's folder the model is in: weft, hub (the Hugging Face Hub's cache), llama.cpp,\n"
      "ollama, lm-studio, or the folder of --models-dir (or WEFT_MODELS_DIR).");
  return [flags] { return ListModels(*flags); };
}

}  // namespace weft::cli
