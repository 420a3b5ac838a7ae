// The chats of one channel (see channel.h) and what they say, between the tasks that write it and
// the client that reads it.
//
// A channel that keeps its chats lets them go on without a client, and tells the next one all they
// said from the beginning, until that client says that it has it. Any thread.
#ifndef WEFT_DOORS_API_PAGE_CHANNEL_CHATS_H_
#define WEFT_DOORS_API_PAGE_CHANNEL_CHATS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "async/signal.h"
#include "async/task.h"
#include "base/mutex.h"

namespace weft::serve {

// An answer in progress: the client leaves it by stopping the chat or closing the channel. Any
// thread.
class Chat {
 public:
  explicit Chat(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  bool gone() const { return gone_.get_token().stop_requested(); }
  std::stop_token cancellation() const { return gone_.get_token(); }
  void Leave() {
    gone_.request_stop();
    room_or_gone_.Notify();
  }
  // Notified when the channel has room again or the chat is left; its handler waits for it.
  Signal& room_or_gone() { return room_or_gone_; }

 private:
  const std::string name_;
  std::stop_source gone_;
  Signal room_or_gone_;
};

class Channel {
 public:
  // A client's connection: notified when Take may have something new. Each has a signal of its own,
  // because one task alone may wait for one. Null: none.
  using Reader = std::shared_ptr<Signal>;
  using TimePoint = std::chrono::steady_clock::time_point;

  // What a channel keeps of its chats. Of a longer answer, the next client gets an error.
  static constexpr size_t kMaxKeptBytes = 2 << 20;

  explicit Channel(bool keeps) : keeps_(keeps) {}
  bool keeps() const { return keeps_; }

  // --- for chats --------------------------------------------------------------------
  // Null if the channel is closed or already has a chat of that name.
  std::shared_ptr<Chat> Add(const std::string& name);
  // Leaves the chat if it runs, otherwise forgets its kept events.
  void Stop(const std::string& name);
  // False if the chat was left.
  bool Push(const Chat& chat, std::string_view frame);
  // Waits while too much is unread, at most until `chat` is left.
  Task<void> Room(Chat& chat);
  // The last frame of a chat, whether or not it was left.
  void End(const Chat& chat, std::string_view frame);

  // --- for the client ---------------------------------------------------------------
  // Ends the former reader. If chats are kept, their names come first, then all they said.
  Reader Attach();
  // No effect if there is another reader by now.
  void Detach(const Reader& reader);
  // Takes the unread frames. False if they are another reader's, the channel is closed, or it is
  // `draining` and nothing is left.
  bool Take(const Reader& reader, bool draining, std::string* frames);
  bool HasReader();
  // Whether another reader has attached itself since.
  bool IsTakenFrom(const Reader& reader);

  void Close();
  // Whether it has no reader and nobody will miss it: it has no chats, or only ended ones and has
  // been left before `before`.
  bool IsForgotten(TimePoint before);

 private:
  struct Kept {
    std::shared_ptr<Chat> chat = nullptr;
    std::string frames = {};  // empty if the channel keeps none
    std::string end = {};     // the last frame
    bool is_over = false;
    bool is_too_long = false;
  };

  bool IsFull();
  void Keep(const std::string& name, std::string_view frame) WEFT_REQUIRES(mutex_);
  int64_t n_running() const WEFT_REQUIRES(mutex_);
  void WakeReader() WEFT_REQUIRES(mutex_) {
    if (reader_ != nullptr) reader_->Notify();
  }

  const bool keeps_;
  Mutex mutex_;
  std::map<std::string, Kept> chats_ WEFT_GUARDED_BY(mutex_);
  std::string unread_ WEFT_GUARDED_BY(mutex_);
  size_t kept_bytes_ WEFT_GUARDED_BY(mutex_) = 0;
  Reader reader_ WEFT_GUARDED_BY(mutex_);
  TimePoint left_ WEFT_GUARDED_BY(mutex_) = std::chrono::steady_clock::now();
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_PAGE_CHANNEL_CHATS_H_
