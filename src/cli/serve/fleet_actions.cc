#include "cli/serve/fleet_actions.h"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "cli/flags/model_removal.h"
#include "cli/flags/ollama_flags.h"
#include "model/hub/model_source.h"
#include "model/hub/names/model_name.h"
#include "model/hub/net/http_client.h"
#include "model/hub/places.h"
#include "model/hub/remove_model.h"

namespace weft::cli {
namespace {

hub::Places PlacesOf(const ServeFlags& flags) {
  hub::Places places = hub::ProcessPlaces();
  if (!flags.model.models_folder.empty()) places.models_folder = flags.model.models_folder;
  return places;
}

// Clients must not be able to make this server contact any other.
Status MayPull(const std::string& name) {
  constexpr std::string_view kOllama = "ollama:";
  if (name.starts_with(kOllama)) {
    return FromOllamaName(std::string_view(name).substr(kOllama.size())).status();
  }
  WEFT_ASSIGN_OR_RETURN(const hub::ModelName parsed,
                        hub::ParseModelName(name, hub::ProcessPlaces().hub_endpoint));
  if (parsed.kind == hub::ModelName::Kind::kFile) {
    return InvalidArgument(Printable(name, 200), " is a file, so there is nothing to download");
  }
  if (parsed.kind != hub::ModelName::Kind::kAddress) return OkStatus();
  return InvalidArgument("models come from ", hub::kOllamaHost, " or hf.co, not from ",
                         Printable(hub::HostOf(name), 200), "; 'weft pull ", Printable(name, 200),
                         "' can download from it");
}

serve::ModelPulls::Pull PullBy(const ServeFlags& flags, std::shared_ptr<const FleetParts> parts) {
  auto budget = std::make_shared<hub::ByteBudget>(flags.server.pull_bytes);
  return [&flags, parts = std::move(parts), budget](
             const std::string& name, const serve::ModelPulls::Tell& tell,
             const std::function<bool()>& is_wanted) -> StatusOr<serve::FleetModel> {
    hub::LoadHooks hooks = hub::LoadHooks::Default();
    hooks.progress = [&tell](const hub::Progress& progress) {
      tell(progress.done_bytes, progress.total_bytes);
    };
    hooks.budget = budget;
    hooks.is_cancelled = [&is_wanted] { return !is_wanted(); };
    const hub::ModelSource source(PlacesOf(flags), std::move(hooks));
    WEFT_ASSIGN_OR_RETURN(const std::string path, source.Pull(name));
    return FleetModelNamed(name, path, flags, parts);
  };
}

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

// FAILED_PRECONDITION if a served model other than `except` is of this file.
Status CheckUnused(const serve::ModelFleet& fleet, const std::string& path,
                   const std::string& except) {
  for (const serve::ModelFleet::Info& info : fleet.List()) {
    if (info.model->name == except || !IsSameFile(info.model->path, path)) continue;
    return FailedPrecondition("the model ", Printable(info.model->name, 200),
                              " is served from the same file");
  }
  return OkStatus();
}

// Deletes the file once nobody uses it.
StatusOr<std::function<void()>> DeleterOf(const ServeFlags& flags, const serve::ModelFleet& fleet,
                                          const serve::FleetModel& served) {
  const std::string& name = served.name;
  const hub::Places places = PlacesOf(flags);
  const hub::ModelSource source(places, hub::LoadHooks::Default());
  const auto found = hub::FindToRemove(source, name);
  if (!found.ok()) return FailedPrecondition(Message(found.status()));
  // A part of a name may find another model.
  if (!IsSameFile(served.path, found->path)) {
    return FailedPrecondition("Weft did not download ", Printable(served.path, 500),
                              "; remove the file yourself");
  }
  WEFT_RETURN_IF_ERROR(CheckUnused(fleet, found->path, name));
  return std::function<void()>([&fleet, places, model = *found, name] {
    // A model that was added meanwhile may be of this file.
    const Status unused = CheckUnused(fleet, model.path, /*except=*/"");
    const StatusOr<int64_t> freed =
        unused.ok() ? RemoveModelAndCopy(places, model) : StatusOr<int64_t>(unused);
    LogLine(freed.ok()
                ? StrCat("deleted ", Printable(name, 200), ", ",
                         HumanBytes(static_cast<uint64_t>(*freed)))
                : StrCat("could not delete ", Printable(name, 200), ": ", Message(freed.status())));
  });
}

}  // namespace

serve::FleetActions FleetActionsFor(const ServeFlags& flags,
                                    std::shared_ptr<const FleetParts> parts,
                                    serve::ModelFleet& fleet) {
  serve::FleetActions actions;
  actions.metrics = flags.server.metrics;
  actions.read_again = [&flags, parts] { return FleetModels(flags, parts); };
  actions.pull = PullBy(flags, parts);
  actions.may_pull = MayPull;
  actions.deleter = [&flags, &fleet](const serve::FleetModel& model) {
    return DeleterOf(flags, fleet, model);
  };
  return actions;
}

serve::OllamaPull OllamaPullFor(const ServeFlags& flags, std::shared_ptr<const FleetParts> parts,
                                serve::ModelFleet& fleet) {
  return [&flags, &fleet, parts = std::move(parts),
          pull = PullForOllama(flags.model.models_folder, flags.server.pull_bytes)](
             const std::string& name, const auto& tell, const auto& is_wanted) -> Status {
    if (fleet.Find(name).ok()) return OkStatus();
    WEFT_RETURN_IF_ERROR(fleet.MayAdd(name));
    WEFT_RETURN_IF_ERROR(pull(name, tell, is_wanted));
    WEFT_ASSIGN_OR_RETURN(const std::string what, FromOllamaName(name));
    const hub::ModelSource source(PlacesOf(flags), hub::LoadHooks::Default());
    WEFT_ASSIGN_OR_RETURN(const std::string path, source.Find(what));
    WEFT_ASSIGN_OR_RETURN(serve::FleetModel model, FleetModelNamed(name, path, flags, parts));
    model.is_added = true;
    return fleet.Add(std::move(model));
  };
}

}  // namespace weft::cli
