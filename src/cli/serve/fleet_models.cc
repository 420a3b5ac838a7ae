#include "cli/serve/fleet_models.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "answer/pictures.h"
#include "base/clock.h"
#include "base/files/file_io.h"
#include "base/files/mapped_file.h"
#include "base/log.h"
#include "base/strings.h"
#include "cli/flags/adapter_flags.h"
#include "cli/flags/bytes_flag.h"
#include "cli/flags/duration_flag.h"
#include "cli/flags/picture_flags.h"
#include "cli/serve/grpc_door.h"
#include "cli/serve/models_file.h"
#include "doors/host/model_host.h"
#include "model/formats/model_facts.h"
#include "model/hub/local_models.h"
#include "model/hub/places.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxModelsFileBytes = size_t{1} << 20;
// A model's sessions get a quarter of the memory that its weights leave.
constexpr int64_t kSessionsPart = 4;
constexpr int64_t kMinSessionBytes = int64_t{64} << 20;
// What a step computes with, as far as is known before a model is loaded.
constexpr int64_t kScratchBytes = int64_t{32} << 20;

// A model and the flags that it is served with.
struct Wanted {
  std::string name;  // empty: its own
  std::vector<std::string> aliases = {};
  bool pinned = false;
  bool eager = false;
  bool may_be_broken = false;
  std::optional<milliseconds> idle_unload = std::nullopt;
  int64_t session_bytes = 0;  // 0: a part of --memory
  std::string said = {};      // of it, in the file of --models
  ServeFlags flags;
};

// --- a loaded model --------------------------------------------------------------------------

// The facts about a model that is not loaded.
struct Recipe {
  // They keep the scales that clients have set while the model is not loaded.
  std::shared_ptr<serve::Adapters> adapters;
  Wanted wanted;
  std::string id;
  std::shared_ptr<const FleetParts> parts;
  int64_t session_bytes = 0;
};

class ServedModel : public serve::LoadedModel {
 public:
  static StatusOr<std::unique_ptr<LoadedModel>> Load(
      std::shared_ptr<const Recipe> recipe, const std::function<void(double fraction)>& told) {
    const int64_t start_us = NowMicros();
    WEFT_ASSIGN_OR_RETURN(const FlaggedModel model, OpenFlaggedModel(recipe->wanted.flags.model));
    WEFT_ASSIGN_OR_RETURN(std::string template_source, ServeTemplate(recipe->wanted.flags));
    WEFT_ASSIGN_OR_RETURN(ServeFlags flags, FlagsOf(*recipe));
    std::unique_ptr<ServedModel> served(
        new ServedModel(std::move(flags), *recipe, model, std::move(template_source), told));
    WEFT_RETURN_IF_ERROR(served->LoadNow());
    RegisterApis(served->flags_, recipe->parts->apis, served->host_, served->router_);
    LogLine(StrCat("loaded ", Printable(recipe->id, 200), " in ",
                   (NowMicros() - start_us + 50'000) / 100'000 * 100, " ms"));
    return served;
  }

  serve::Host& host() override { return host_; }
  const serve::Router& router() const override { return router_; }
  int64_t memory_bytes() const override {
    const EngineStats stats = host_.engine().Stats();
    const serve::Pictures* const pictures = host_.answerer().pictures();
    return stats.weight_bytes + stats.draft_weight_bytes + host_.engine().options().memory_bytes +
           stats.scratch_bytes + stats.draft_scratch_bytes +
           (pictures != nullptr ? pictures->memory_bytes() : 0);
  }
  Status Park(milliseconds grace) override { return host_.Drain(grace); }

 private:
  ServedModel(ServeFlags flags, const Recipe& recipe, const FlaggedModel& model,
              std::string template_source, const std::function<void(double fraction)>& told)
      : flags_(std::move(flags)),
        host_({.load = [this, shelf = recipe.parts->shelf.get(), file = model.file,
                        told] { return shelf->Load(flags_.model, file, told); },
               .load_draft = [this, shelf = recipe.parts->shelf.get()](
                                 const Model& of) { return shelf->LoadDraft(flags_.model, of); },
               .load_encoder =
                   [this](const Model& of) { return LoadFlaggedEncoder(flags_.model, of); },
               .gate_for =
                   [gates = recipe.parts->gates.get()](const Model& of) { return gates->Of(of); },
               .engine = EngineOf(recipe, flags_),
               .template_source = std::move(template_source),
               .model_id = recipe.id,
               .defaults = DefaultsOf(recipe, flags_, model),
               .loaded = [this](const Status& status) { loaded_.set_value(status); },
               .drain = recipe.parts->drain,
               .activity = recipe.parts->activity}) {}

  // The server's, with what a model must have of its own.
  static StatusOr<ServeFlags> FlagsOf(const Recipe& recipe) {
    ServeFlags flags = recipe.wanted.flags;
    flags.server.page = false;
    flags.server.strict_model_name = false;  // the fleet has found it by its name
    if (!flags.server.slot_save_path.empty()) {
      StrAppend(&flags.server.slot_save_path, "/", serve::DefaultModelId(recipe.id));
      WEFT_RETURN_IF_ERROR(CreateDirectories(flags.server.slot_save_path));
    }
    return flags;
  }
  static EngineOptions EngineOf(const Recipe& recipe, const ServeFlags& flags) {
    EngineOptions engine = recipe.parts->engine;
    if (const auto own = FlaggedEngineOptions(flags.model); own.ok()) {
      engine.n_threads = own->n_threads;
      engine.kv_type = own->kv_type;
      engine.kv_values = own->kv_values;
      engine.speculation = own->speculation;
      engine.max_guesses = own->max_guesses;
    }
    engine.memory_bytes = recipe.session_bytes;
    engine.state_dir = recipe.parts->state_dir.empty() ? ""
                                                       : StrCat(recipe.parts->state_dir, "/models/",
                                                                serve::DefaultModelId(recipe.id));
    return engine;
  }
  static serve::RequestDefaults DefaultsOf(const Recipe& recipe, const ServeFlags& flags,
                                           const FlaggedModel& model) {
    serve::RequestDefaults defaults = ServeDefaults(flags, model.advice);
    defaults.further_names = recipe.wanted.aliases;
    defaults.adapters = recipe.adapters;
    return defaults;
  }

  Status LoadNow() {
    std::future<Status> loaded = loaded_.get_future();
    host_.StartLoading();
    return loaded.get();
  }

  const ServeFlags flags_;
  std::promise<Status> loaded_;
  serve::ModelHost host_;
  serve::Router router_;  // destroyed before the host
};

// --- what the flags ask for ------------------------------------------------------------------

// The flags that may differ between models.
void AddFlagsOfModel(CLI::App* app, Wanted* wanted, int64_t* idle_seconds, std::string* memory) {
  ServeFlags* const flags = &wanted->flags;
  AddFlagsOfEachModel(app, flags);
  app->add_option("--model", flags->model.path);
  app->add_option("--spec", flags->model.spec_path);
  app->add_option("--aliases", wanted->aliases);
  app->add_flag("--pinned", wanted->pinned);
  app->add_option("--memory", *memory);
  AddDurationFlag(app, "--idle-unload", idle_seconds, "");
  CLI::Option* const file = app->add_option("--template", flags->server.template_file);
  app->add_option("--builtin", flags->server.builtin_template)->excludes(file);
  app->add_option("--n-predict", flags->server.n_predict)->check(CLI::Range(-1, 1 << 30));
}

// "--key=value" for each value; a bool that is false is left out.
std::vector<std::string> ArgumentsOf(const ModelTable& table) {
  std::vector<std::string> arguments;
  for (const ModelTable::Value& value : table.values) {
    for (const std::string& item : value.items) {
      if (item == "false" && !value.is_array) continue;
      const bool is_flag = item == "true" && !value.is_array;
      arguments.push_back(is_flag ? StrCat("--", value.key) : StrCat("--", value.key, "=", item));
    }
  }
  std::ranges::reverse(arguments);  // as CLI11 wants them
  return arguments;
}

StatusOr<Wanted> WantedOf(const ModelTable& table, const ServeFlags& flags) {
  Wanted wanted{.name = table.name, .flags = flags};
  wanted.flags.model.path = table.name;  // unless it says another
  int64_t idle_seconds = -1;
  std::string memory;
  CLI::App app;
  app.set_help_flag();
  AddFlagsOfModel(&app, &wanted, &idle_seconds, &memory);
  const std::string place =
      StrCat("the model [", Printable(table.name, 100), "] of line ", table.line);
  try {
    std::vector<std::string> arguments = ArgumentsOf(table);
    wanted.said = StrJoin(arguments, "\n");
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(place, ": ", error.what());
  }
  if (idle_seconds >= 0) wanted.idle_unload = std::chrono::seconds(idle_seconds);
  if (!memory.empty() && !ParseBytes(memory, &wanted.session_bytes)) {
    return InvalidArgument(place, ": memory is a number of bytes, such as \"800M\"");
  }
  return wanted;
}

StatusOr<std::vector<Wanted>> WantedByFile(const ServeFlags& flags) {
  const std::string& path = flags.models_file;
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxModelsFileBytes));
  const auto tables = ParseModelsFile(text);
  WEFT_RETURN_IF_ERROR(Annotate(tables.status(), Printable(path, 200), ": "));
  std::vector<Wanted> all;
  for (const ModelTable& table : *tables) {
    auto wanted = WantedOf(table, flags);
    WEFT_RETURN_IF_ERROR(Annotate(wanted.status(), Printable(path, 200), ": "));
    all.push_back(*std::move(wanted));
  }
  return all;
}

std::vector<Wanted> WantedInFolder(const ServeFlags& flags) {
  std::vector<Wanted> all;
  hub::Places places;
  places.models_folder = flags.model.models_folder;
  for (const hub::LocalModel& model : hub::ListLocalModels(places)) {
    if (model.owner != hub::Owner::kFolder) continue;
    Wanted wanted{.name = std::filesystem::path(model.path).stem().string(),
                  .may_be_broken = true,
                  .flags = flags};
    wanted.flags.model.path = model.path;
    all.push_back(std::move(wanted));
  }
  return all;
}

StatusOr<std::vector<Wanted>> AllWanted(const ServeFlags& flags) {
  std::vector<Wanted> all;
  if (!flags.model.adapters.empty()) {
    return InvalidArgument(
        "--lora belongs to one model; name it with the model in a file for --models, as in lora = "
        "[\"NAME=FILE\"]");
  }
  for (const std::string& path : flags.models) {
    Wanted wanted{.name = "", .eager = true, .flags = flags};
    wanted.flags.model.path = path;
    all.push_back(std::move(wanted));
  }
  if (!flags.models_file.empty()) {
    WEFT_ASSIGN_OR_RETURN(std::vector<Wanted> of_file, WantedByFile(flags));
    std::ranges::move(of_file, std::back_inserter(all));
  }
  if (all.empty()) all = WantedInFolder(flags);
  if (all.empty()) {
    return InvalidArgument(
        "there is no model to serve in ",
        Printable(flags.models_file.empty() ? flags.model.models_folder : flags.models_file, 300));
  }
  return all;
}

// --- facts known before loading ------------------------------------------------------------------

int64_t ChangeTime(const std::string& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error) return 0;
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

// A file's name without its ending, a folder's, or else the words themselves, such as "box".
std::string NameOfPath(const std::string& words) {
  const std::filesystem::path path(words);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return serve::DefaultModelId((path / "").parent_path().filename().string());
  }
  const bool is_file = std::filesystem::exists(path, error);
  return serve::DefaultModelId(is_file ? path.stem().string() : words);
}

void DescribeFile(const Wanted& wanted, const ModelFile& file, serve::FleetModel* model) {
  model->path = file.path();
  model->file_name = std::filesystem::path(file.path()).filename().string();
  model->file_bytes = static_cast<int64_t>(file.file_bytes());
  model->file_time_s = ChangeTime(file.path());
  model->source =
      StrCat(file.path(), "\n", model->file_bytes, "\n", model->file_time_s, "\n", wanted.said);
  model->facts = FactsOf(file);
  if (wanted.flags.model.context > 0) model->facts.context_tokens = wanted.flags.model.context;
}

// NAME and MODEL of an --alias; both are empty if it is not written so.
std::pair<std::string, std::string> SplitAlias(const std::string& alias) {
  const size_t equals = alias.find('=');
  if (equals == alias.npos) return {};
  return {alias.substr(0, equals), alias.substr(equals + 1)};
}

// The names that --alias gives the model, which it calls by its own name or by what -m says.
std::vector<std::string> FurtherNames(const ServeFlags& flags, const std::string& own) {
  std::vector<std::string> names;
  for (const std::string& alias : flags.server.aliases) {
    const auto [name, model] = SplitAlias(alias);
    if (!name.empty() && (model == own || model == flags.model.path)) names.push_back(name);
  }
  return names;
}

// The names by which requests choose the model with an adapter. Returns the adapters' bytes.
int64_t AddAdapters(const ModelFlags& flags, serve::FleetModel* model) {
  std::vector<std::string> names = model->aliases;
  names.push_back(model->name);
  int64_t bytes = 0;
  for (const AdapterFlag& adapter : flags.adapters) {
    for (const std::string& name : names) {
      model->aliases.push_back(StrCat(name, ":", adapter.name));
    }
    std::error_code error;
    const auto size = std::filesystem::file_size(adapter.path, error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

StatusOr<serve::FleetModel> FleetModelOf(Wanted wanted, std::shared_ptr<const FleetParts> parts) {
  serve::FleetModel model{.name = wanted.name,
                          .aliases = wanted.aliases,
                          .pinned = wanted.pinned,
                          .eager = wanted.eager,
                          .idle_unload = wanted.idle_unload};
  const auto opened = OpenFlaggedModel(wanted.flags.model);
  if (!opened.ok()) {
    if (!wanted.may_be_broken) return opened.status();
    model.problem = Message(opened.status());
    model.source = model.problem;
    model.path = wanted.flags.model.path;
    return model;
  }
  if (model.name.empty()) model.name = opened->name;
  if (model.name.empty()) model.name = NameOfPath(wanted.flags.model.path);
  std::ranges::copy(FurtherNames(wanted.flags, model.name), std::back_inserter(wanted.aliases));
  model.aliases = wanted.aliases;
  const int64_t adapter_bytes = AddAdapters(wanted.flags.model, &model);
  DescribeFile(wanted, *opened->file, &model);
  const int64_t weights = model.facts.tensor_bytes + adapter_bytes;
  const int64_t session_bytes =
      wanted.session_bytes > 0
          ? wanted.session_bytes
          : std::max((parts->memory_bytes - weights) / kSessionsPart, kMinSessionBytes);
  model.needs_bytes = weights + session_bytes + kScratchBytes;
  if (const int64_t projector = FlaggedProjectorBytes(wanted.flags.model, model.path)) {
    model.needs_bytes += projector + wanted.flags.server.image_cache_bytes;
  }
  auto adapters = OfferedAdapters(wanted.flags.model);
  auto recipe = std::make_shared<Recipe>(Recipe{.adapters = std::move(adapters),
                                                .wanted = std::move(wanted),
                                                .id = model.name,
                                                .parts = std::move(parts),
                                                .session_bytes = session_bytes});
  model.load = [recipe](const auto& told) { return ServedModel::Load(recipe, told); };
  return model;
}

// A name or alias means one model, and each has a directory of its own.
Status CheckNames(const std::vector<serve::FleetModel>& models) {
  std::set<std::string> names, folders;
  for (const serve::FleetModel& model : models) {
    for (const std::string& name : model.AllNames()) {
      if (names.insert(name).second) continue;
      return InvalidArgument("two models are called ", Printable(name, 200),
                             "; name them in a file for --models");
    }
    if (!folders.insert(serve::DefaultModelId(model.name)).second) {
      return InvalidArgument("the names of two models differ too little: ",
                             Printable(model.name, 200));
    }
  }
  return OkStatus();
}

// Each --alias names one of them, by a word of `known`.
Status CheckAliases(const ServeFlags& flags, const std::set<std::string>& known,
                    const std::vector<serve::FleetModel>& models) {
  std::vector<std::string> names;
  names.reserve(models.size());
  for (const serve::FleetModel& model : models) names.push_back(Printable(model.name, 100));
  for (const std::string& alias : flags.server.aliases) {
    const auto [name, model] = SplitAlias(alias);
    if (!name.empty() && known.contains(model)) continue;
    return InvalidArgument(
        "with several models, write --alias NAME=MODEL, such as --alias haiku=", names.front(),
        ", not ", Printable(alias, 200), "; there are ", StrJoin(names, ", "));
  }
  return OkStatus();
}

// "cuda 0": what computes most of it. Of a divided model that is the card.
std::string GateKeyOf(const Model& model) {
  std::string_view key = "cpu";
  const std::string_view name = model.backend_name();  // such as "cpu:12+cuda:20"
  for (const std::string_view part : StrSplit(name, '+')) {
    const std::string_view kind = part.substr(0, part.find_first_of(":-"));
    if (kind != "cpu") key = kind;
  }
  return StrCat(key, " ", model.weights()->device());
}

}  // namespace

std::shared_ptr<StepGate> StepGates::Of(const Model& model) {
  MutexLock lock(&mutex_);
  std::shared_ptr<StepGate>& gate = gates_[GateKeyOf(model)];
  if (gate == nullptr) gate = NewStepGate();
  return gate;
}

bool ServesSeveral(const ServeFlags& flags) {
  if (flags.models.size() > 1 || !flags.models_file.empty()) return true;
  return flags.model.path.empty() && !flags.model.models_folder.empty();
}

StatusOr<std::vector<serve::FleetModel>> FleetModels(const ServeFlags& flags,
                                                     std::shared_ptr<const FleetParts> parts) {
  WEFT_ASSIGN_OR_RETURN(std::vector<Wanted> all, AllWanted(flags));
  std::vector<serve::FleetModel> models;
  std::set<std::string> known;  // words that --alias can call a model by
  for (Wanted& wanted : all) {
    std::string said = wanted.flags.model.path;
    WEFT_ASSIGN_OR_RETURN(models.emplace_back(), FleetModelOf(std::move(wanted), parts));
    if (models.back().problem.empty()) known.insert({std::move(said), models.back().name});
  }
  WEFT_RETURN_IF_ERROR(CheckAliases(flags, known, models));
  WEFT_RETURN_IF_ERROR(CheckNames(models));
  WEFT_RETURN_IF_ERROR(PinForGrpc(flags, &models));
  return models;
}

StatusOr<serve::FleetModel> FleetModelNamed(const std::string& name, const std::string& path,
                                            const ServeFlags& flags,
                                            std::shared_ptr<const FleetParts> parts) {
  Wanted wanted{.name = name, .flags = flags};
  wanted.flags.model.path = path;
  return FleetModelOf(std::move(wanted), std::move(parts));
}

}  // namespace weft::cli
