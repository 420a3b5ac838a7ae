// Publishes an engine's cached prefixes as vLLM's KV events over ZeroMQ: a PUB socket whose
// messages are (topic, number, batch), and a ROUTER socket that sends batches again.
//
// A subscriber first gets a snapshot, so it may come at any time. One that reads slowly is sent the
// batches that it has not got as it reads on. A request to the ROUTER is a number: it is answered
// by the batches from that one on, and then by number -1 without a batch. Of batches that are kept
// no more, a snapshot takes the place (see KvEventLog).
#ifndef WEFT_DOORS_KV_EVENTS_KV_PUBLISHER_H_
#define WEFT_DOORS_KV_EVENTS_KV_PUBLISHER_H_

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "doors/host/host.h"
#include "doors/kv_events/kv_event_log.h"

namespace weft::serve {

struct KvPublisherOptions {
  std::string host = "127.0.0.1";
  int port = 5557;         // 0: any free port
  int replay_port = 5558;  // the same
  std::string topic;
  std::string domain;  // whose prefixes are published, see ApiKeys::Owner
  KvEventLog::Limits limits = {};
  int max_clients = 64;                 // connected to each port
  size_t max_unsent_bytes = 128 << 10;  // to one client; a snapshot may be larger
};

class KvPublisher {
 public:
  // Listening when it returns. The host outlives the publisher, and is ready.
  static StatusOr<std::unique_ptr<KvPublisher>> Start(Host* host, KvPublisherOptions options);
  virtual ~KvPublisher() = default;

  virtual int port() const = 0;
  virtual int replay_port() const = 0;
  // From now on those of another domain, or none. Any thread.
  virtual void Follow(std::optional<std::string> domain) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_KV_EVENTS_KV_PUBLISHER_H_
