#include "api/page/channel.h"

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

#include "api/fields/session_name.h"
#include "api/fields/support.h"
#include "api/openai/routes.h"
#include "async/signal.h"
#include "async/task.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::steady_clock;

// Unsent events; beyond this the channel's chats wait.
constexpr size_t kMaxPendingBytes = 256 << 10;
// After this much silence a channel sends a sign of life.
constexpr std::chrono::seconds kQuiet{15};

// An answer in progress: the client leaves it by stopping the chat or closing the channel. Any
// thread.
class Chat {
 public:
  bool gone() const { return gone_.get_token().stop_requested(); }
  std::stop_token cancellation() const { return gone_.get_token(); }
  void Leave() {
    gone_.request_stop();
    room_or_gone_.Notify();
  }
  // Notified when the channel has room again or the chat is left; its handler waits for it.
  Signal& room_or_gone() { return room_or_gone_; }

 private:
  std::stop_source gone_;
  Signal room_or_gone_;
};

class Channel {
 public:
  // Null if the channel is closed or already has a chat of that name.
  std::shared_ptr<Chat> Add(const std::string& name) {
    MutexLock lock(&mutex_);
    if (closed_ || chats_.contains(name)) return nullptr;
    return chats_[name] = std::make_shared<Chat>();
  }

  void Stop(const std::string& name) {
    std::shared_ptr<Chat> chat;
    {
      MutexLock lock(&mutex_);
      const auto it = chats_.find(name);
      if (it == chats_.end()) return;
      chat = it->second;
    }
    chat->Leave();
  }

  void Close() {
    std::map<std::string, std::shared_ptr<Chat>> chats;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      chats.swap(chats_);
    }
    changed_.Notify();
    for (const auto& [name, chat] : chats) chat->Leave();
  }

  // False if the chat was left.
  bool Push(const Chat& chat, std::string_view frame) {
    {
      MutexLock lock(&mutex_);
      if (closed_ || chat.gone()) return false;
      pending_.append(frame);
    }
    changed_.Notify();
    return true;
  }

  // Waits while too much is pending, at most until `chat` is left.
  Task<void> Room(Chat& chat) {
    while (IsFull() && !chat.gone()) co_await chat.room_or_gone().Wait();
  }

  // The last frame of a chat, whether or not it was left. Frees its name.
  void End(const std::string& name, std::string_view frame) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      pending_.append(frame);
      chats_.erase(name);
    }
    changed_.Notify();
  }

  // Takes the pending frames. False if the channel is closed, or if `draining` and nothing is left.
  bool Take(bool draining, std::string* frames) {
    MutexLock lock(&mutex_);
    *frames = std::exchange(pending_, {});
    if (frames->size() > kMaxPendingBytes) {
      for (const auto& [name, chat] : chats_) chat->room_or_gone().Notify();
    }
    return !closed_ && !(draining && chats_.empty() && frames->empty());
  }

  // Notified when Take may have something new.
  Signal& changed() { return changed_; }

 private:
  bool IsFull() {
    MutexLock lock(&mutex_);
    return pending_.size() > kMaxPendingBytes && !closed_;
  }

  Signal changed_;
  Mutex mutex_;
  std::string pending_ WEFT_GUARDED_BY(mutex_);
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Chat>> chats_ WEFT_GUARDED_BY(mutex_);
};

// Channels by domain and name.
class Channels {
 public:
  using Key = std::pair<std::string, std::string>;

  explicit Channels(const ChannelLimits& limits) : limits_(limits) {}

  // A client that lost its connection reopens its channel before the loss is noticed, so an
  // existing channel of that name is closed. RESOURCE_EXHAUSTED if there are too many.
  StatusOr<std::shared_ptr<Channel>> Open(const Key& key) {
    const auto channel = std::make_shared<Channel>();
    std::shared_ptr<Channel> former;
    {
      MutexLock lock(&mutex_);
      if (!channels_.contains(key)) WEFT_RETURN_IF_ERROR(CheckRoom(key.first));
      former = std::exchange(channels_[key], channel);
    }
    if (former != nullptr) former->Close();
    return channel;
  }

  void Drop(const Key& key, const std::shared_ptr<Channel>& channel) {
    MutexLock lock(&mutex_);
    const auto it = channels_.find(key);
    if (it != channels_.end() && it->second == channel) channels_.erase(it);
  }

  std::shared_ptr<Channel> Find(const Key& key) {
    MutexLock lock(&mutex_);
    const auto it = channels_.find(key);
    return it == channels_.end() ? nullptr : it->second;
  }

 private:
  Status CheckRoom(const std::string& domain) const WEFT_REQUIRES(mutex_) {
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

// The chat handler's responder: its frames become events of the channel. Token counts are recorded
// for the request that began the chat.
class ChatResponder : public HttpResponder {
 public:
  ChatResponder(std::string_view name, Channel* channel, Chat* chat, HttpResponder* request)
      : event_(StrCat("event: ", name, "\n")),
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
  void NoteTokens(const TurnTokens& tokens) override { request_.NoteTokens(tokens); }

 private:
  const std::string event_;
  Channel& channel_;
  Chat& chat_;
  HttpResponder& request_;
};

// Tells a chat's client that its turn is over, however the handler ended.
class ChatEnding {
 public:
  ChatEnding(std::string name, Channel* channel) : name_(std::move(name)), channel_(*channel) {}
  ~ChatEnding() { channel_.End(name_, StrCat("event: ", name_, "\ndata: {\"ended\":true}\n\n")); }
  ChatEnding(const ChatEnding&) = delete;
  ChatEnding& operator=(const ChatEnding&) = delete;

 private:
  const std::string name_;
  Channel& channel_;
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
Task<void> Serve(Host& host, Channel& channel, HttpResponder& responder) {
  const std::function<void()> look = channel.changed().Notifier();
  const std::stop_callback<std::function<void()>> on_draining(host.draining(), look);
  const HttpHeaders headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  bool is_open =
      responder.Begin(200, "text/event-stream", headers) && responder.Write(": open\n\n");
  std::string frames;
  while (is_open && channel.Take(host.phase() == Phase::kDraining, &frames)) {
    if (!frames.empty()) {
      is_open = responder.Write(frames);
      co_await responder.Room();
      continue;
    }
    const auto quiet_until = steady_clock::now() + kQuiet;
    const bool has_changed = co_await channel.changed().WaitUntil(quiet_until);
    if (!has_changed) is_open = responder.Write(": still open\n\n");
  }
}

Task<void> HandleOpen(Host& host, Channels& channels, const HttpRequest& request,
                      HttpResponder& responder) {
  const Status status = CheckNames(request);
  if (!status.ok()) {
    SendError(responder, status, ErrorShape::kOpenAi);
    co_return;
  }
  if (request.method == "HEAD") {
    responder.Send(200, "text/event-stream", "");
    co_return;
  }
  const auto opened = channels.Open(KeyOf(request));
  if (!opened.ok()) {
    SendError(responder, opened.status(), ErrorShape::kOpenAi);
    co_return;
  }
  const std::shared_ptr<Channel> channel = *opened;
  const std::function<void()> close = [channel] { channel->Close(); };
  const std::stop_callback<std::function<void()>> on_gone(responder.cancellation(), close);
  co_await Serve(host, *channel, responder);
  channel->Close();
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
    SendError(responder, status, ErrorShape::kOpenAi);
    co_return;
  }
  const std::shared_ptr<Channel> channel = channels.Find(KeyOf(request));
  const auto chat = AddChat(channel, request);
  if (!chat.ok()) {
    SendError(responder, chat.status(), ErrorShape::kOpenAi);
    co_return;
  }
  const std::string& name = request.path_arguments[1];
  const ChatEnding ending(name, channel.get());
  responder.Send(202, "application/json", CompactJson({{"chat", name}}));
  ChatResponder answer(name, channel.get(), chat->get(), &responder);
  co_await HandleChatCompletions(host, request, answer);
}

void HandleStop(Channels& channels, const HttpRequest& request, HttpResponder& responder) {
  const Status status = CheckNames(request);
  if (!status.ok()) return SendError(responder, status, ErrorShape::kOpenAi);
  if (const auto channel = channels.Find(KeyOf(request))) {
    channel->Stop(request.path_arguments[1]);
  }
  SendJson(responder, {{"stopped", true}, {"chat", request.path_arguments[1]}});
}

}  // namespace

void RegisterChannelApi(Router& router, Host& host, const ChannelLimits& limits) {
  const auto channels = std::make_shared<Channels>(limits);
  router.AddTask("GET", "/v1/channels/{channel}", ErrorShape::kOpenAi,
                 [&host, channels](const HttpRequest& request, HttpResponder& responder) {
                   return HandleOpen(host, *channels, request, responder);
                 });
  router.AddTask("POST", "/v1/channels/{channel}/chats/{chat}", ErrorShape::kOpenAi,
                 [&host, channels](const HttpRequest& request, HttpResponder& responder) {
                   return HandleChat(host, *channels, request, responder);
                 });
  router.AddQuick("DELETE", "/v1/channels/{channel}/chats/{chat}", ErrorShape::kOpenAi,
                  [channels](const HttpRequest& request, HttpResponder& responder) {
                    HandleStop(*channels, request, responder);
                  });
}

}  // namespace weft::serve
