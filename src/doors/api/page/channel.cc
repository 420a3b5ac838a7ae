#include "doors/api/page/channel.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/fields/support.h"
#include "doors/api/openai/routes.h"
#include "doors/api/page/channel_chats.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::steady_clock;

// After this much silence a channel sends a sign of life.
constexpr std::chrono::seconds kQuiet{15};

// How long a channel that keeps its chats is kept after its last client has left.
constexpr std::chrono::hours kForgottenAfter{1};

}  // namespace

// Channels by domain and name.
class Channels {
 public:
  using Key = std::pair<std::string, std::string>;

  explicit Channels(const ChannelLimits& limits) : limits_(limits) {}

  struct Opened {
    std::shared_ptr<Channel> channel;
    Channel::Reader reader;
  };

  // The channel of that name if both it and this request keep chats. Otherwise a new one: a client
  // that lost its connection reopens its channel before the loss is noticed, so the former one is
  // closed. RESOURCE_EXHAUSTED if there are too many; FAILED_PRECONDITION if it `must_be_free` and
  // has a reader.
  StatusOr<Opened> Open(const Key& key, bool keeps, bool must_be_free) {
    std::shared_ptr<Channel> former;
    Opened opened;
    {
      MutexLock lock(&mutex_);
      const auto it = channels_.find(key);
      if (it == channels_.end()) WEFT_RETURN_IF_ERROR(MakeRoom(key.first));
      if (must_be_free && it != channels_.end() && it->second->HasReader()) {
        return FailedPrecondition(
            "another page reads this channel; open it without free=1 to read "
            "it instead");
      }
      std::shared_ptr<Channel>& place = channels_[key];
      if (place == nullptr || !keeps || !place->keeps()) {
        former = std::exchange(place, std::make_shared<Channel>(keeps));
      }
      opened = {.channel = place, .reader = place->Attach()};  // before anybody drops it
    }
    if (former != nullptr) former->Close();
    return opened;
  }

  // Unless it is needed, or opened again by now.
  void Drop(const Key& key, const std::shared_ptr<Channel>& channel) {
    MutexLock lock(&mutex_);
    const auto it = channels_.find(key);
    if (it == channels_.end() || it->second != channel) return;
    if (channel->IsForgotten(Channel::TimePoint::min())) channels_.erase(it);
  }

  std::shared_ptr<Channel> Find(const Key& key) {
    MutexLock lock(&mutex_);
    const auto it = channels_.find(key);
    return it == channels_.end() ? nullptr : it->second;
  }

 private:
  Status MakeRoom(const std::string& domain) WEFT_REQUIRES(mutex_) {
    const auto before = steady_clock::now() - kForgottenAfter;
    std::erase_if(channels_,
                  [&](const auto& channel) { return channel.second->IsForgotten(before); });
    const auto of_domain =
        std::count_if(channels_.begin(), channels_.end(),
                      [&](const auto& channel) { return channel.first.first == domain; });
    if (of_domain >= limits_.of_one_key) {
      return ResourceExhausted("all ", limits_.of_one_key,
                               " channels are open; close one, or try again later");
    }
    if (static_cast<int>(channels_.size()) < limits_.all) return OkStatus();
    return ResourceExhausted("no further channel can be opened now; try again later");
  }

  const ChannelLimits limits_;
  Mutex mutex_;
  std::map<Key, std::shared_ptr<Channel>> channels_ WEFT_GUARDED_BY(mutex_);
};

namespace {

// The chat handler's responder: its frames become events of the channel. Its cost is noted
// for the request that began the chat.
class ChatResponder : public HttpResponder {
 public:
  ChatResponder(Channel* channel, Chat* chat, HttpResponder* request)
      : event_(StrCat("event: ", chat->name(), "\n")),
        channel_(*channel),
        chat_(*chat),
        request_(*request) {}

  void Send(int status, std::string_view /*content_type*/, std::string body,
            HttpHeaders headers) override {
    std::string data = StrCat("{\"status\":", status);
    for (const auto& [header, value] : headers) {
      if (header == "Retry-After") StrAppend(&data, ",\"retry_after\":", value);
    }
    channel_.Push(chat_, StrCat(event_, "data: ", data, ",\"body\":", body, "}\n\n"));
  }
  bool Begin(int /*status*/, std::string_view /*content_type*/, HttpHeaders /*headers*/) override {
    return !gone();
  }
  // Receives whole frames, as SseStream writes them.
  bool Write(std::string_view frame) override {
    return channel_.Push(chat_, StrCat(event_, frame));
  }
  void End() override {}
  Task<void> Room() override { return channel_.Room(chat_); }
  bool gone() const override { return chat_.gone(); }
  std::stop_token cancellation() const override { return chat_.cancellation(); }
  void NoteWork(const HttpWork& work) override { request_.NoteWork(work); }

 private:
  const std::string event_;
  Channel& channel_;
  Chat& chat_;
  HttpResponder& request_;
};

// Tells a chat's client that its turn is over, however the handler ended.
class ChatEnding {
 public:
  ChatEnding(std::shared_ptr<Channel> channel, std::shared_ptr<Chat> chat)
      : channel_(std::move(channel)), chat_(std::move(chat)) {}
  ~ChatEnding() {
    channel_->End(*chat_, StrCat("event: ", chat_->name(), "\ndata: {\"ended\":true}\n\n"));
  }
  ChatEnding(const ChatEnding&) = delete;
  ChatEnding& operator=(const ChatEnding&) = delete;

 private:
  const std::shared_ptr<Channel> channel_;
  const std::shared_ptr<Chat> chat_;
};

// The names in the path must be valid session names.
Status CheckNames(const HttpRequest& request) {
  for (const std::string& name : request.path_arguments) {
    WEFT_RETURN_IF_ERROR(ValidateSessionName(name));
  }
  return OkStatus();
}

Channels::Key KeyOf(const HttpRequest& request) {
  return {request.domain, request.path_arguments[0]};
}

// Writes what the channel's chats say, until its client leaves or the server shuts down.
Task<void> Serve(Host& host, Channel& channel, const Channel::Reader& reader,
                 HttpResponder& responder) {
  const std::function<void()> look = reader->Notifier();
  const std::stop_callback<std::function<void()>> on_draining(host.draining(), look);
  const HttpHeaders headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  bool is_open =
      responder.Begin(200, "text/event-stream", headers) && responder.Write(": open\n\n");
  std::string frames;
  while (is_open && channel.Take(reader, host.phase() == Phase::kDraining, &frames)) {
    if (!frames.empty()) {
      is_open = responder.Write(frames);
      co_await responder.Room();
      continue;
    }
    const auto quiet_until = steady_clock::now() + kQuiet;
    const bool has_changed = co_await reader->WaitUntil(quiet_until);
    if (!has_changed) is_open = responder.Write(": still open\n\n");
  }
  if (channel.IsTakenFrom(reader)) responder.Write("data: {\"taken\": true}\n\n");
}

bool IsSet(const HttpRequest& request, const char* name) {
  const auto it = request.query.find(name);
  return it != request.query.end() && it->second == "1";
}

Task<void> HandleOpen(Host& host, Channels& channels, const HttpRequest& request,
                      HttpResponder& responder) {
  const Status status = CheckNames(request);
  if (!status.ok()) {
    SendError(responder, status, kOpenAiErrors);
    co_return;
  }
  if (request.method == "HEAD") {
    responder.Send(200, "text/event-stream", "");
    co_return;
  }
  const auto opened = channels.Open(KeyOf(request), IsSet(request, "keep"), IsSet(request, "free"));
  if (!opened.ok()) {
    SendError(responder, opened.status(), kOpenAiErrors);
    co_return;
  }
  const std::shared_ptr<Channel> channel = opened->channel;
  const Channel::Reader reader = opened->reader;
  const std::function<void()> leave = [channel, reader] {
    if (channel->keeps()) return channel->Detach(reader);
    channel->Close();
  };
  {
    const std::stop_callback<std::function<void()>> on_gone(responder.cancellation(), leave);
    co_await Serve(host, *channel, reader, responder);
  }
  leave();
  channels.Drop(KeyOf(request), channel);
  responder.End();
}

// A chat of an open channel; or why it cannot be begun.
StatusOr<std::shared_ptr<Chat>> AddChat(const std::shared_ptr<Channel>& channel,
                                        const HttpRequest& request) {
  if (channel == nullptr) {
    return NotFound("there is no channel \"", request.path_arguments[0],
                    "\"; open it with GET first and keep it open");
  }
  const std::string& name = request.path_arguments[1];
  auto chat = channel->Add(name);
  if (chat == nullptr) {
    return FailedPrecondition("the channel has a chat \"", name,
                              "\" already; wait for its end or use another name");
  }
  return chat;
}

Task<void> HandleChat(Host& host, Channels& channels, const HttpRequest& request,
                      HttpResponder& responder) {
  const Status status = CheckNames(request);
  if (!status.ok()) {
    SendError(responder, status, kOpenAiErrors);
    co_return;
  }
  const std::shared_ptr<Channel> channel = channels.Find(KeyOf(request));
  const auto chat = AddChat(channel, request);
  if (!chat.ok()) {
    SendError(responder, chat.status(), kOpenAiErrors);
    co_return;
  }
  const ChatEnding ending(channel, *chat);
  responder.Send(202, "application/json", CompactJson({{"chat", (*chat)->name()}}));
  ChatResponder answer(channel.get(), chat->get(), &responder);
  co_await HandleChatCompletions(host, request, answer);
}

void HandleStop(Channels& channels, const HttpRequest& request, HttpResponder& responder) {
  const Status status = CheckNames(request);
  if (!status.ok()) return SendError(responder, status, kOpenAiErrors);
  if (const auto channel = channels.Find(KeyOf(request))) {
    channel->Stop(request.path_arguments[1]);
  }
  SendJson(responder, {{"stopped", true}, {"chat", request.path_arguments[1]}});
}

}  // namespace

std::shared_ptr<Channels> NewChannels(const ChannelLimits& limits) {
  return std::make_shared<Channels>(limits);
}

void RegisterChannelApi(Router& router, Host& host, std::shared_ptr<Channels> channels,
                        bool needs_model) {
  router.Add({.method = "GET",
              .pattern = "/v1/channels/{channel}",
              .shape = kOpenAiErrors,
              .task =
                  [&host, channels](const HttpRequest& request, HttpResponder& responder) {
                    return HandleOpen(host, *channels, request, responder);
                  },
              .needs_model = needs_model});
  router.AddTask("POST", "/v1/channels/{channel}/chats/{chat}", kOpenAiErrors,
                 [&host, channels](const HttpRequest& request, HttpResponder& responder) {
                   return HandleChat(host, *channels, request, responder);
                 });
  router.Add({.method = "DELETE",
              .pattern = "/v1/channels/{channel}/chats/{chat}",
              .shape = kOpenAiErrors,
              .handler =
                  [channels](const HttpRequest& request, HttpResponder& responder) {
                    HandleStop(*channels, request, responder);
                  },
              .needs_model = needs_model,
              .is_quick = true});
}

}  // namespace weft::serve
