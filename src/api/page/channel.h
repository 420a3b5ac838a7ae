// Many chats over one connection: a browser opens about six to a server, and a page shows
// more conversations than that.
//
// GET /v1/channels/{channel} is a stream of server-sent events that stays open. POST
// /v1/channels/{channel}/chats/{chat} takes the body of a chat completion, is answered with
// 202 at once, and its answer comes as events of the channel named {chat}. DELETE of the
// same path ends that chat. When the stream's client goes away, its chats end with it.
//
// Channels of one API key are unknown to every other. Any thread.
#ifndef WEFT_API_PAGE_CHANNEL_H_
#define WEFT_API_PAGE_CHANNEL_H_

#include "host/host.h"
#include "http/router.h"

namespace weft::serve {

// Open at the same time; each holds one of the server's threads.
inline constexpr int kMaxChannels = 32;

struct ChannelLimits {
  int all = kMaxChannels;
  int of_one_key = kMaxChannels;
};

// `host` outlives the router.
void RegisterChannelApi(Router& router, Host& host, const ChannelLimits& limits = {});

}  // namespace weft::serve

#endif  // WEFT_API_PAGE_CHANNEL_H_
