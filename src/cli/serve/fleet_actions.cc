#include "cli/serve/fleet_actions.h"

#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "cli/flags/ollama_flags.h"
#include "model/hub/model_source.h"
#include "model/hub/places.h"
#include "model/hub/remove_model.h"

namespace weft::cli {
namespace {

hub::Places PlacesOf(const ServeFlags& flags) {
  hub::Places places = hub::ProcessPlaces();
  if (!flags.model.models_folder.empty()) places.models_folder = flags.model.models_folder;
  return places;
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

// Deletes the file once nobody uses it.
StatusOr<std::function<void()>> DeleterOf(const ServeFlags& flags,
                                          const serve::FleetModel& served) {
  const std::string& name = served.name;
  const hub::Places places = PlacesOf(flags);
  const hub::ModelSource source(places, hub::LoadHooks::Default());
  const auto found = hub::FindToRemove(source, name);
  if (!found.ok()) return FailedPrecondition(Message(found.status()));
  // A part of a name may find another model.
  const std::string path = served.source.substr(0, served.source.find('\n'));
  std::error_code error;
  if (!std::filesystem::equivalent(path, found->path, error)) {
    return FailedPrecondition("Weft did not download ", Printable(path, 500),
                              "; remove the file yourself");
  }
  return std::function<void()>([places, model = *found, name] {
    const auto freed = hub::RemoveModel(places, model);
    LogLine(freed.ok()
                ? StrCat("deleted ", Printable(name, 200), ", ",
                         HumanBytes(static_cast<uint64_t>(*freed)))
                : StrCat("could not delete ", Printable(name, 200), ": ", Message(freed.status())));
  });
}

}  // namespace

serve::FleetActions FleetActionsFor(const ServeFlags& flags,
                                    std::shared_ptr<const FleetParts> parts) {
  serve::FleetActions actions;
  actions.metrics = flags.server.metrics;
  actions.read_again = [&flags, parts] { return FleetModels(flags, parts); };
  actions.pull = PullBy(flags, parts);
  actions.deleter = [&flags](const serve::FleetModel& model) { return DeleterOf(flags, model); };
  return actions;
}

serve::OllamaPull OllamaPullFor(const ServeFlags& flags, std::shared_ptr<const FleetParts> parts,
                                serve::ModelFleet& fleet) {
  return [&flags, &fleet, parts = std::move(parts),
          pull = PullForOllama(flags.model.models_folder, flags.server.pull_bytes)](
             const std::string& name, const auto& tell, const auto& is_wanted) -> Status {
    if (fleet.Find(name).ok()) return OkStatus();
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
