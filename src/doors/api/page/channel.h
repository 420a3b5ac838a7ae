// Multiplexes many chats over one connection: a browser opens about six connections to a server,
// and a page shows more conversations than that.
//
// GET /v1/channels/{channel} is a stream of server-sent events that stays open. POST
// /v1/channels/{channel}/chats/{chat} takes the body of a chat completion and is answered with 202
// at once; the answer arrives as events named {chat} on the channel. DELETE of the same path ends
// that chat. When the stream's client leaves, its chats end with it.
//
// With ?keep=1 they go on: a client that opens the channel again, such as a page that was reloaded,
// first gets the event {"chats": [names]}, then all that these said from the beginning. DELETE of a
// chat that has ended says that the client has it. A channel has one reader: the one before gets
// {"taken": true}. With &free=1, a channel that has one is refused with 409.
//
// Channels of one API key are invisible to all others. Any thread.
#ifndef WEFT_DOORS_API_PAGE_CHANNEL_H_
#define WEFT_DOORS_API_PAGE_CHANNEL_H_

#include <memory>

#include "doors/host/host.h"
#include "doors/http/router.h"

namespace weft::serve {

// Most channels open at a time.
inline constexpr int kMaxChannels = 32;

struct ChannelLimits {
  int all = kMaxChannels;
  int of_one_key = kMaxChannels;
};

// The open channels. Several routers may share them: a chat runs with the model of its router.
class Channels;
std::shared_ptr<Channels> NewChannels(const ChannelLimits& limits);

// `host` outlives the router. `needs_model`: channels are opened only once the model is loaded.
void RegisterChannelApi(Router& router, Host& host, std::shared_ptr<Channels> channels,
                        bool needs_model = true);
inline void RegisterChannelApi(Router& router, Host& host, const ChannelLimits& limits = {}) {
  RegisterChannelApi(router, host, NewChannels(limits));
}

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_PAGE_CHANNEL_H_
