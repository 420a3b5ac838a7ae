#include "cli/flags/door_flags.h"

#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/strings.h"

namespace weft::cli {
namespace {

StatusOr<serve::ApiKeys> LoadKeys(std::string_view flag, const std::string& path) {
  if (path.empty()) return serve::ApiKeys();
  auto keys = serve::ApiKeys::Load(path);
  WEFT_RETURN_IF_ERROR(Annotate(keys.status(), flag, ": "));
  if (const std::string warning = serve::KeyFileWarning(path); !warning.empty()) {
    LogLine(warning);
  }
  return keys;
}

bool IsAddress(const std::string& text) {
  in6_addr address = {};
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

void Reload(serve::ApiKeys* keys, std::string_view what) {
  if (!keys->required()) return;
  const Status status = keys->Reload();
  LogLine(status.ok() ? StrCat("reloaded ", keys->size(), " ", what)
                      : StrCat("the ", what, " are unchanged: ", Message(status)));
}

}  // namespace

StatusOr<serve::FrontDoor::Options> DoorOptions(const serve::ServerOptions& options) {
  serve::FrontDoor::Options door;
  door.max_parsed_bytes = static_cast<uint64_t>(options.request_bytes) / 3 * 2;
  WEFT_ASSIGN_OR_RETURN(door.keys, LoadKeys("--api-key-file", options.api_key_file));
  WEFT_ASSIGN_OR_RETURN(door.metrics_keys,
                        LoadKeys("--metrics-key-file", options.metrics_key_file));
  WEFT_ASSIGN_OR_RETURN(door.guard,
                        serve::HttpGuard::Create({.bind_host = options.host,
                                                  .allowed_hosts = options.allowed_hosts,
                                                  .cors_origins = options.cors_origins}));
  return door;
}

void SetLimits(const serve::ServerOptions& options, serve::HttpServerOptions* http) {
  http->max_connections = options.max_connections;
  http->max_waiting = options.max_connections;
  http->max_total_body_bytes = static_cast<uint64_t>(options.request_bytes) / 3;
  http->max_share_body_bytes = http->max_total_body_bytes / 2;
  if (options.max_body_bytes > 0) {
    http->max_body_bytes = static_cast<uint64_t>(options.max_body_bytes);
  }
}

int SessionsPerKey(const serve::ServerOptions& options, const serve::ApiKeys& keys) {
  if (options.max_sessions_per_key > 0) return options.max_sessions_per_key;
  if (keys.size() < 2) return 0;
  return std::max(1, options.max_sessions / static_cast<int>(keys.size()));
}

StatusOr<std::map<std::string, double, std::less<>>> ShareWeights(
    const serve::ServerOptions& options, const serve::ApiKeys& keys) {
  constexpr double kMin = 0.01, kMax = 100;
  std::map<std::string, double, std::less<>> weights;
  for (const std::string& share : options.shares) {
    const size_t equals = share.rfind('=');
    const std::string key = share.substr(0, equals);
    double weight = 0;
    const bool is_number =
        equals != share.npos && CLI::detail::lexical_cast(share.substr(equals + 1), weight);
    if (key.empty() || !is_number || !(weight >= kMin && weight <= kMax)) {
      return InvalidArgument("--share is KEY=WEIGHT, such as kitchen=3, with a weight from ", kMin,
                             " to ", kMax);
    }
    serve::HttpRequest request;  // as that tenant sends it
    if (const auto owner = keys.FindByName(key); owner.has_value()) {
      request.domain = owner->domain;
    } else if (IsAddress(key)) {
      request.address = key;
    } else {
      return InvalidArgument("--share: no key of --api-key-file has the name '",
                             Printable(key, 100),
                             "', and it is no address; write the name after the key");
    }
    if (!weights.emplace(request.Account(), weight).second) {
      return InvalidArgument("--share: '", Printable(key, 100), "' is given twice");
    }
  }
  return weights;
}

serve::ChannelLimits ChannelsPerKey(const serve::ApiKeys& keys) {
  constexpr int kMinOfOneKey = 2, kMax = 1024;
  const int n_keys = static_cast<int>(std::min<size_t>(keys.size(), kMax));
  if (n_keys < 2) return {};
  serve::ChannelLimits limits;
  limits.of_one_key = std::max(kMinOfOneKey, serve::kMaxChannels / n_keys);
  limits.all = std::clamp(limits.of_one_key * n_keys, serve::kMaxChannels, kMax);
  return limits;
}

uint64_t MaxBodyBytes(const serve::ServerOptions& options, int64_t context_tokens,
                      int64_t row_width, bool sees) {
  if (options.max_body_bytes > 0) return static_cast<uint64_t>(options.max_body_bytes);
  const uint64_t of_text = (uint64_t{1} << 20) + 64 * static_cast<uint64_t>(context_tokens);
  // A session's vectors as 32-bit floats in base64.
  const int64_t most = std::min(EngineOptions().max_row_bytes, context_tokens * row_width * 4);
  const uint64_t of_pictures = sees ? uint64_t{64} << 20 : 0;
  return of_text + static_cast<uint64_t>(most) / 3 * 4 + of_pictures;
}

void ReloadKeys(serve::ApiKeys* keys, serve::ApiKeys* metrics_keys) {
  if (!keys->required() && !metrics_keys->required()) {
    LogLine("there is no --api-key-file to reload");
  }
  Reload(keys, "API keys");
  Reload(metrics_keys, "keys for metrics");
}

}  // namespace weft::cli
