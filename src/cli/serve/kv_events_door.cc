#include "cli/serve/kv_events_door.h"

#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "doors/http/guard.h"

namespace weft::cli {
namespace {

constexpr int64_t kLastPort = 65535;

struct Endpoint {
  std::string host;
  int port = 0;
};

// "tcp://127.0.0.1:5557", "tcp://[::1]:5557", "tcp://*:0".
StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  constexpr std::string_view kScheme = "tcp://";
  const size_t colon = text.rfind(':');
  int64_t port = -1;
  if (text.starts_with(kScheme) && colon != text.npos && colon > kScheme.size()) {
    std::string_view host = text.substr(kScheme.size(), colon - kScheme.size());
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    if (ParseInt64(text.substr(colon + 1), &port) && port >= 0 && port <= kLastPort) {
      return Endpoint{std::string(host), static_cast<int>(port)};
    }
  }
  return InvalidArgument("--kv-events ", Printable(text, 200),
                         " is no endpoint; write one such as tcp://127.0.0.1:5557");
}

int ReplayPort(const serve::ServerOptions& flags, int port) {
  if (flags.kv_events_replay >= 0) return flags.kv_events_replay;
  return port == 0 ? 0 : port + 1;
}

}  // namespace

Status CheckKvEvents(const serve::ServerOptions& flags, const serve::ApiKeys& keys) {
  if (flags.kv_events.empty()) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(flags.kv_events));
  if (ReplayPort(flags, endpoint.port) > kLastPort) {
    return InvalidArgument("there is no port after ", endpoint.port, "; add --kv-events-replay");
  }
  if (!serve::IsLoopbackHost(endpoint.host) && !flags.kv_events_open) {
    return InvalidArgument("--kv-events ", Printable(flags.kv_events, 200),
                           " can be reached from other machines, and whoever reaches it reads the "
                           "prompts; if your network keeps strangers out, add --kv-events-open");
  }
  if (!keys.required()) return OkStatus();
  if (flags.share_prefixes) {
    return InvalidArgument(
        "--kv-events cannot tell the prompts of one key where --share-prefixes mixes them");
  }
  if (flags.kv_events_key.empty()) {
    return InvalidArgument(
        "with API keys, --kv-events needs --kv-events-key NAME: the key whose prompts are "
        "published, such as the router's own");
  }
  if (keys.FindByName(flags.kv_events_key)) return OkStatus();
  return InvalidArgument("no API key has the name ", Printable(flags.kv_events_key, 100),
                         ": names stand after the keys in the --api-key-file");
}

StatusOr<std::unique_ptr<serve::KvPublisher>> StartKvEvents(const serve::ServerOptions& flags,
                                                            const serve::ApiKeys& keys,
                                                            std::string_view http_address,
                                                            serve::Host* host) {
  if (flags.kv_events.empty()) return std::unique_ptr<serve::KvPublisher>();
  WEFT_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(flags.kv_events));
  const auto owner = keys.FindByName(flags.kv_events_key);
  serve::KvPublisherOptions options = {
      .host = std::move(endpoint.host),
      .port = endpoint.port,
      .replay_port = ReplayPort(flags, endpoint.port),
      .topic = flags.kv_events_topic.empty() ? StrCat("kv@", http_address, "@", host->model_id())
                                             : flags.kv_events_topic,
      .domain = owner ? owner->domain : std::string()};
  const std::string topic = Printable(options.topic, 200);
  WEFT_ASSIGN_OR_RETURN(auto publisher, serve::KvPublisher::Start(host, std::move(options)));
  LogLine(StrCat("KV events are published on port ", publisher->port(), " as ", topic,
                 ", and again on port ", publisher->replay_port()));
  return publisher;
}

}  // namespace weft::cli
