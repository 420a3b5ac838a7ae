// --kv-events of weft serve.
#ifndef WEFT_CLI_SERVE_KV_EVENTS_DOOR_H_
#define WEFT_CLI_SERVE_KV_EVENTS_DOOR_H_

#include <memory>
#include <string_view>

#include "base/status.h"
#include "doors/host/api_keys.h"
#include "doors/host/host.h"
#include "doors/host/server_options.h"
#include "doors/kv_events/kv_publisher.h"

namespace weft::cli {

// INVALID_ARGUMENT unless the prefixes may be published as the flags say.
Status CheckKvEvents(const serve::ServerOptions& flags, const serve::ApiKeys& keys);
// Null if no flag asks for it. REQUIRES: CheckKvEvents was OK, and the host is ready.
// `http_address` is "HOST:PORT".
StatusOr<std::unique_ptr<serve::KvPublisher>> StartKvEvents(const serve::ServerOptions& flags,
                                                            const serve::ApiKeys& keys,
                                                            std::string_view http_address,
                                                            serve::Host* host);
// After the keys were read again.
void FollowKeys(const serve::ServerOptions& flags, const serve::ApiKeys& keys,
                serve::KvPublisher* publisher);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_KV_EVENTS_DOOR_H_
