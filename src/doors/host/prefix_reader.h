// The prefixes that a server's cache holds for requests of one caller, as a router is told of them.
#ifndef WEFT_DOORS_HOST_PREFIX_READER_H_
#define WEFT_DOORS_HOST_PREFIX_READER_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "doors/host/host.h"
#include "weft/options.h"
#include "weft/prefix_events.h"

namespace weft::serve {

// One thread at a time.
class PrefixReader {
 public:
  // `wake` is called on any thread when there is more to take, and must return at once. The host
  // outlives the reader.
  PrefixReader(Host* host, std::string domain, std::function<void()> wake)
      : host_(*host), domain_(std::move(domain)), wake_(std::move(wake)) {}

  // What has changed. True if all that was told before is void, as at first: the events are
  // then the first of those that tell everything anew. Requests that name no adapters get the
  // defaults, so it begins anew when these change; and when too much changed to be told one by one.
  // An error ends it.
  StatusOr<bool> Take(std::vector<PrefixEvent>* events);

 private:
  Host& host_;
  const std::string domain_;
  const std::function<void()> wake_;
  std::vector<AdapterScale> adapters_;
  std::shared_ptr<PrefixFeed> feed_;  // null: it must begin anew
};

// How many of the first events can be told together, up to `max`: they are of one kind and tier,
// and each stored page follows the one before.
size_t RunLength(std::span<const PrefixEvent> events, size_t max);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_PREFIX_READER_H_
