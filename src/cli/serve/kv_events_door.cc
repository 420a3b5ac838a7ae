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

// A router takes the server's address and the model from the topic.
Status CheckTopic(const serve::ServerOptions& flags) {
  if (!flags.kv_events_topic.empty()) return OkStatus();
  const bool has_at = !flags.aliases.empty() && flags.aliases[0].find('@') != std::string::npos;
  if (!serve::IsAnyAddress(flags.host) && !has_at) return OkStatus();
  return InvalidArgument(
      "--kv-events needs a --kv-events-topic here, such as kv@10.0.0.5:", flags.port,
      "@model: ", has_at ? "the model's name has an @" : "--host is no single address");
}

// Whose prefixes are published. Nothing: the key is gone.
std::optional<std::string> DomainOf(const serve::ServerOptions& flags, const serve::ApiKeys& keys) {
  if (!keys.required()) return std::string();
  const auto owner = keys.FindByName(flags.kv_events_key);
  if (!owner) return std::nullopt;
  return owner->domain;
}

std::string NoKey(const serve::ServerOptions& flags) {
  return StrCat("no API key has the name ", Printable(flags.kv_events_key, 100),
                ": names stand after the keys in the --api-key-file");
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
  WEFT_RETURN_IF_ERROR(CheckTopic(flags));
  if (!keys.required()) {
    if (flags.kv_events_key.empty()) return OkStatus();
    return InvalidArgument("--kv-events-key needs an --api-key-file with that name");
  }
  if (flags.share_prefixes) {
    return InvalidArgument(
        "--kv-events cannot tell the prompts of one key where --share-prefixes mixes them");
  }
  if (flags.kv_events_key.empty()) {
    return InvalidArgument(
        "with API keys, --kv-events needs --kv-events-key NAME: the key whose prompts are "
        "published, such as the router's own");
  }
  if (DomainOf(flags, keys)) return OkStatus();
  return InvalidArgument(NoKey(flags));
}

StatusOr<std::unique_ptr<serve::KvPublisher>> StartKvEvents(const serve::ServerOptions& flags,
                                                            const serve::ApiKeys& keys,
                                                            std::string_view http_address,
                                                            serve::Host* host) {
  if (flags.kv_events.empty()) return std::unique_ptr<serve::KvPublisher>();
  WEFT_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(flags.kv_events));
  const std::optional<std::string> domain = DomainOf(flags, keys);
  if (!domain) return FailedPrecondition(NoKey(flags));
  serve::KvPublisherOptions options = {
      .host = std::move(endpoint.host),
      .port = endpoint.port,
      .replay_port = ReplayPort(flags, endpoint.port),
      .topic = flags.kv_events_topic.empty() ? StrCat("kv@", http_address, "@", host->model_id())
                                             : flags.kv_events_topic,
      .domain = *domain};
  const std::string topic = Printable(options.topic, 200);
  WEFT_ASSIGN_OR_RETURN(auto publisher, serve::KvPublisher::Start(host, std::move(options)));
  LogLine(StrCat("KV events are published on port ", publisher->port(), " as ", topic,
                 ", and again on port ", publisher->replay_port()));
  return publisher;
}

void FollowKeys(const serve::ServerOptions& flags, const serve::ApiKeys& keys,
                serve::KvPublisher* publisher) {
  const std::optional<std::string> domain = DomainOf(flags, keys);
  if (!domain) LogLine(StrCat("KV events end: ", NoKey(flags)));
  publisher->Follow(domain);
}

}  // namespace weft::cli
