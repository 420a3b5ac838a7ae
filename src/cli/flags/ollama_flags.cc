#include "cli/flags/ollama_flags.h"

#include <memory>
#include <utility>

#include "base/strings.h"
#include "doors/http/guard.h"
#include "model/hub/model_source.h"
#include "model/hub/names/model_name.h"
#include "model/hub/places.h"

namespace weft::cli {
namespace {

using Stage = hub::Progress::Stage;

std::string WordsOf(const hub::Progress& progress) {
  switch (progress.stage) {
    case Stage::kWaiting:
      return StrCat("waiting for another program that is pulling ", progress.name);
    case Stage::kChecking:
      return "verifying sha256 digest";
    case Stage::kUnpacking:
      return "unpacking";
    case Stage::kLoading:
    case Stage::kPackages:
      break;
  }
  return StrCat("pulling ", progress.name);
}

}  // namespace

std::optional<serve::HttpServerOptions::Second> OllamaListener(
    const serve::ServerOptions& options) {
  const std::string& host = options.host;
  const int port = options.ollama_port;
  const bool opens_loopback = serve::IsLoopbackHost(host) || serve::IsAnyAddress(host);
  if (!options.ollama || (options.port == port && port != 0 && opens_loopback)) return std::nullopt;
  return serve::HttpServerOptions::Second{
      .host = "127.0.0.1",
      .port = port,
      .way_out =
          "another program, most likely Ollama itself, uses it; stop that one, or omit --ollama "
          "and give clients the address with --port"};
}

StatusOr<std::string> FromOllamaName(std::string_view name) {
  for (const std::string_view hub : {"hf.co/", "huggingface.co/"}) {
    if (!name.starts_with(hub)) continue;
    const std::string of_hub = StrCat("hf:", name.substr(hub.size()));
    WEFT_RETURN_IF_ERROR(hub::ParseHubName(of_hub).status());
    return of_hub;
  }
  WEFT_ASSIGN_OR_RETURN(const hub::OllamaName parsed, hub::ParseOllamaName(name));
  if (parsed.host != hub::kOllamaHost) {
    return InvalidArgument("models come from ", hub::kOllamaHost, " or hf.co, not from ",
                           Printable(parsed.host), "; 'weft pull ollama:", Printable(name, 200),
                           "' can download from it");
  }
  return StrCat("ollama:", name);
}

serve::OllamaPullProgress ToOllamaProgress(const hub::Progress& progress) {
  return {.status = WordsOf(progress),
          .digest = progress.sha256.empty() ? "" : StrCat("sha256:", progress.sha256),
          .total_bytes = progress.total_bytes,
          .completed_bytes = progress.done_bytes};
}

serve::OllamaPull PullForOllama(std::string models_folder, int64_t max_bytes) {
  return [models_folder = std::move(models_folder),
          budget = std::make_shared<hub::ByteBudget>(max_bytes)](
             const std::string& name,
             const std::function<void(const serve::OllamaPullProgress&)>& tell,
             const std::function<bool()>& is_wanted) -> Status {
    WEFT_ASSIGN_OR_RETURN(const std::string what, FromOllamaName(name));
    hub::LoadHooks hooks = hub::LoadHooks::Default();
    hooks.progress = [&tell](const hub::Progress& progress) { tell(ToOllamaProgress(progress)); };
    hooks.budget = budget;
    hooks.is_cancelled = [&is_wanted] { return !is_wanted(); };
    hub::Places places = hub::ProcessPlaces();
    if (!models_folder.empty()) places.models_folder = models_folder;
    tell({.status = "pulling manifest"});
    return hub::ModelSource(std::move(places), std::move(hooks)).Pull(what).status();
  };
}

}  // namespace weft::cli
