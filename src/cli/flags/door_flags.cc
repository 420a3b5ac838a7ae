#include "cli/flags/door_flags.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "cli/flags/bytes_flag.h"

namespace weft::cli {
namespace {

StatusOr<serve::ApiKeys> LoadKeys(const std::string& path) {
  if (path.empty()) return serve::ApiKeys();
  auto keys = serve::ApiKeys::Load(path);
  if (!keys.ok()) return keys;
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

void AddDoorFlags(CLI::App* app, DoorFlags* flags) {
  app->add_option("--api-key-file", flags->api_key_file,
                  "Accepted API keys, one per line, each followed by an optional name");
  app->add_option("--metrics-key-file", flags->metrics_key_file,
                  "Keys that see everybody's metrics in /metrics; by default the key of "
                  "--api-key-file does if it is the only one, otherwise each key sees its own");
  app->add_option("--cors-origin", flags->cors_origins,
                  "Accept browser requests from pages of this origin, such as https://page.example "
                  "(localhost: every page on this machine, *: any page); may be repeated");
  app->add_option(
      "--allowed-host", flags->allowed_hosts,
      "An additional host name for the server; may be repeated. On 127.0.0.1 only localhost and "
      "these names are accepted; elsewhere any name is, unless this option is given");
  app->add_option(
         "--max-connections", flags->max_connections,
         "Maximum number of open connections, half of them of one address; for a further one "
         "the oldest that waits for a request is closed, else it gets 503")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app->add_option("--max-sessions-per-key", flags->max_sessions_per_key,
                  "Maximum number of sessions per API key (0: an equal share of --max-sessions)")
      ->check(CLI::Range(0, 60000))
      ->capture_default_str();
  app->add_option("--share", flags->shares,
                  "Weight of an API key's share where requests wait for each other, such as "
                  "kitchen=3 (all others have 1); the key by its name in --api-key-file, or a "
                  "client without key by its address; may be repeated")
      ->type_name("KEY=WEIGHT");
  AddBytesFlag(app, "--max-body", &flags->max_body_bytes,
               "Maximum size of a request body (default: 1M plus 64 bytes per token of the "
               "context, and room "
               "for vectors with --enable-prompt-embeds)");
  AddBytesFlag(
      app, "--request-memory", &flags->request_bytes,
      "Memory for requests being read and handled; a key or address gets at most half of what "
      "others leave, and 429 or 503 beyond that (default: 768M)");
  app->add_option("--metrics", flags->metrics, "Whether to serve /metrics: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app->add_flag("--no-slots", flags->no_slots, "Answer /slots with 501");
  app->add_flag("--no-ui,--no-webui", flags->no_ui, "Do not serve the web page");
  app->add_flag("--log-text,--verbose", flags->log_text,
                "Also log the text of requests and answers, which is never logged otherwise");
}

StatusOr<serve::FrontDoor::Options> DoorOptions(const DoorFlags& flags, const std::string& host) {
  serve::FrontDoor::Options options;
  options.log_text = flags.log_text;
  options.max_parsed_bytes = static_cast<uint64_t>(flags.request_bytes) / 3 * 2;
  WEFT_ASSIGN_OR_RETURN(options.keys, LoadKeys(flags.api_key_file));
  WEFT_ASSIGN_OR_RETURN(options.metrics_keys, LoadKeys(flags.metrics_key_file));
  WEFT_ASSIGN_OR_RETURN(options.guard,
                        serve::HttpGuard::Create({.bind_host = host,
                                                  .allowed_hosts = flags.allowed_hosts,
                                                  .cors_origins = flags.cors_origins}));
  return options;
}

void SetLimits(const DoorFlags& flags, serve::HttpServerOptions* options) {
  options->max_connections = flags.max_connections;
  options->max_waiting = flags.max_connections;
  options->max_total_body_bytes = static_cast<uint64_t>(flags.request_bytes) / 3;
  options->max_share_body_bytes = options->max_total_body_bytes / 2;
  if (flags.max_body_bytes > 0)
    options->max_body_bytes = static_cast<uint64_t>(flags.max_body_bytes);
}

int SessionsPerKey(const DoorFlags& flags, const serve::ApiKeys& keys, int max_sessions) {
  if (flags.max_sessions_per_key > 0) return flags.max_sessions_per_key;
  if (keys.size() < 2) return 0;
  return std::max(1, max_sessions / static_cast<int>(keys.size()));
}

StatusOr<std::map<std::string, double, std::less<>>> ShareWeights(const DoorFlags& flags,
                                                                  const serve::ApiKeys& keys) {
  constexpr double kLeast = 0.01, kMost = 100;
  std::map<std::string, double, std::less<>> weights;
  for (const std::string& share : flags.shares) {
    const size_t equals = share.rfind('=');
    const std::string key = share.substr(0, equals);
    double weight = 0;
    const bool is_number =
        equals != share.npos && CLI::detail::lexical_cast(share.substr(equals + 1), weight);
    if (key.empty() || !is_number || !(weight >= kLeast && weight <= kMost)) {
      return InvalidArgument("--share is KEY=WEIGHT, such as kitchen=3, with a weight from ",
                             kLeast, " to ", kMost);
    }
    serve::HttpRequest request;  // of that tenant
    if (const auto owner = keys.FindByName(key); owner.has_value()) {
      request.domain = owner->domain;
    } else if (IsAddress(key)) {
      request.address = key;
    } else {
      return InvalidArgument("--share: no key of --api-key-file has the name '",
                             Printable(key, 100),
                             "', and it is no address; write the name behind the key");
    }
    if (!weights.emplace(request.Account(), weight).second) {
      return InvalidArgument("--share: '", Printable(key, 100), "' is given twice");
    }
  }
  return weights;
}

serve::ChannelLimits ChannelsPerKey(const serve::ApiKeys& keys) {
  constexpr int kLeastOfOneKey = 2, kMost = 1024;
  const int n_keys = static_cast<int>(std::min<size_t>(keys.size(), kMost));
  if (n_keys < 2) return {};
  serve::ChannelLimits limits;
  limits.of_one_key = std::max(kLeastOfOneKey, serve::kMaxChannels / n_keys);
  limits.all = std::clamp(limits.of_one_key * n_keys, serve::kMaxChannels, kMost);
  return limits;
}

uint64_t MaxBodyBytes(const DoorFlags& flags, int64_t context_tokens, int64_t row_width) {
  if (flags.max_body_bytes > 0) return static_cast<uint64_t>(flags.max_body_bytes);
  const uint64_t of_text = (uint64_t{1} << 20) + 64 * static_cast<uint64_t>(context_tokens);
  // A session's vectors as 32-bit floats in base64.
  const int64_t most = std::min(EngineOptions().max_row_bytes, context_tokens * row_width * 4);
  return of_text + static_cast<uint64_t>(most) / 3 * 4;
}

void ReloadKeys(serve::ApiKeys* keys, serve::ApiKeys* metrics_keys) {
  if (!keys->required() && !metrics_keys->required()) {
    LogLine("there is no --api-key-file to reload");
  }
  Reload(keys, "API keys");
  Reload(metrics_keys, "keys for metrics");
}

}  // namespace weft::cli
