#include "api/page/channel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/openai/routes.h"
#include "api/session_name.h"
#include "api/support.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::steady_clock;

// Unsent events; beyond this the channel's chats wait.
constexpr size_t kMaxPendingBytes = 256 << 10;
// How soon a server shutdown is noticed, and after how many intervals a quiet channel sends a sign
// of life.
constexpr std::chrono::seconds kLook{1};
constexpr int kQuietLooks = 15;

// An answer in progress: the client leaves it by stopping the chat or closing the channel. Call
// Leave from any thread, the rest on the chat's handler thread.
class Chat {
 public:
  bool gone() const { return gone_.load(std::memory_order_acquire); }

  void Leave() {
    gone_.store(true, std::memory_order_release);
    MutexLock lock(&mutex_);
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }

  void OnGone(std::function<void()> callback) {
    MutexLock lock(&mutex_);
    if (gone()) {
      callback();
    } else {
      on_gone_ = std::move(callback);
    }
  }

  // The handler has returned: the callback's references are no longer valid.
  void Finish() {
    MutexLock lock(&mutex_);
    on_gone_ = nullptr;
  }

 private:
  std::atomic<bool> gone_{false};
  Mutex mutex_;  // held while the callback runs
  std::function<void()> on_gone_ WEFT_GUARDED_BY(mutex_);
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
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }

  void Close() {
    std::map<std::string, std::shared_ptr<Chat>> chats;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      chats.swap(chats_);
      changed_.NotifyAll();
    }
    for (const auto& [name, chat] : chats) chat->Leave();
  }

  // Waits while too much is pending, at most until `chat` is left. False if it was.
  bool Push(const Chat& chat, std::string_view frame) {
    MutexLock lock(&mutex_);
    while (pending_.size() > kMaxPendingBytes && !closed_ && !chat.gone()) changed_.Wait(&mutex_);
    if (closed_ || chat.gone()) return false;
    Append(frame);
    return true;
  }

  // The last frame of a chat, whether or not it was left. Frees its name.
  void End(const std::string& name, std::string_view frame) {
    MutexLock lock(&mutex_);
    if (closed_) return;
    Append(frame);
    chats_.erase(name);
  }

  // Waits a while for pending frames and takes them. False if the channel is closed, or if
  // `draining` and nothing is left.
  bool Take(bool draining, std::string* frames) {
    const auto deadline = steady_clock::now() + kLook;
    MutexLock lock(&mutex_);
    while (pending_.empty() && !closed_ && !(draining && chats_.empty())) {
      if (!changed_.WaitUntil(&mutex_, deadline)) break;
    }
    *frames = std::exchange(pending_, {});
    changed_.NotifyAll();
    return !closed_ && !(draining && chats_.empty() && frames->empty());
  }

 private:
  void Append(std::string_view frame) WEFT_REQUIRES(mutex_) {
    pending_.append(frame);
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
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
  bool gone() const override { return chat_.gone(); }
  void OnGone(std::function<void()> gone) override { chat_.OnGone(std::move(gone)); }
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
  ChatEnding(std::string name, Channel* channel, Chat* chat)
      : name_(std::move(name)), channel_(*channel), chat_(*chat) {}
  ~ChatEnding() {
    chat_.Finish();
    channel_.End(name_, StrCat("event: ", name_, "\ndata: {\"ended\":true}\n\n"));
  }
  ChatEnding(const ChatEnding&) = delete;
  ChatEnding& operator=(const ChatEnding&) = delete;

 private:
  const std::string name_;
  Channel& channel_;
  Chat& chat_;
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

void HandleOpen(Host& host, Channels& channels, const HttpRequest& request,
                HttpResponder& responder) {
  const Status status = CheckNames(request);
  if (!status.ok()) return SendError(responder, status, ErrorShape::kOpenAi);
  if (request.method == "HEAD") return responder.Send(200, "text/event-stream", "");
  const auto opened = channels.Open(KeyOf(request));
  if (!opened.ok()) return SendError(responder, opened.status(), ErrorShape::kOpenAi);
  const std::shared_ptr<Channel>& channel = *opened;
  responder.OnGone([channel] { channel->Close(); });
  const HttpHeaders headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  bool open = responder.Begin(200, "text/event-stream", headers) && responder.Write(": open\n\n");
  std::string frames;
  for (int quiet = 0; open && channel->Take(host.phase() == Phase::kDraining, &frames);) {
    quiet = frames.empty() ? quiet + 1 : 0;
    if (quiet == kQuietLooks) {
      frames = ": still open\n\n";
      quiet = 0;
    }
    if (!frames.empty()) open = responder.Write(frames);
  }
  channel->Close();
  channels.Drop(KeyOf(request), channel);
  responder.End();
}

void HandleChat(Host& host, Channels& channels, const HttpRequest& request,
                HttpResponder& responder) {
  const Status status = CheckNames(request);
  if (!status.ok()) return SendError(responder, status, ErrorShape::kOpenAi);
  const auto channel = channels.Find(KeyOf(request));
  if (channel == nullptr) {
    return SendError(responder,
                     NotFound("there is no channel \"", request.path_arguments[0],
                              "\"; open it with GET first and keep it open"),
                     ErrorShape::kOpenAi);
  }
  const std::string& name = request.path_arguments[1];
  const auto chat = channel->Add(name);
  if (chat == nullptr) {
    return SendError(responder,
                     FailedPrecondition("the channel has a chat \"", name,
                                        "\" already; wait for its end or use another name"),
                     ErrorShape::kOpenAi);
  }
  const ChatEnding ending(name, channel.get(), chat.get());
  responder.Send(202, "application/json", CompactJson({{"chat", name}}));
  ChatResponder answer(name, channel.get(), chat.get(), &responder);
  HandleChatCompletions(host, request, answer);
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
  router.Add("GET", "/v1/channels/{channel}", ErrorShape::kOpenAi,
             [&host, channels](const HttpRequest& request, HttpResponder& responder) {
               HandleOpen(host, *channels, request, responder);
             });
  router.Add("POST", "/v1/channels/{channel}/chats/{chat}", ErrorShape::kOpenAi,
             [&host, channels](const HttpRequest& request, HttpResponder& responder) {
               HandleChat(host, *channels, request, responder);
             });
  router.AddQuick("DELETE", "/v1/channels/{channel}/chats/{chat}", ErrorShape::kOpenAi,
                  [channels](const HttpRequest& request, HttpResponder& responder) {
                    HandleStop(*channels, request, responder);
                  });
}

}  // namespace weft::serve
