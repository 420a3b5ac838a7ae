#include "doors/api/page/channel_chats.h"

#include <algorithm>

#include "base/strings.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// Unread events; beyond this the channel's chats wait.
constexpr size_t kMaxUnreadBytes = 256 << 10;

std::string TooLongFrame(const std::string& name) {
  const Json error = {{"error",
                       {{"code", 507},
                        {"message",
                         "the answer is longer than what the server keeps of it; continue it, or "
                         "ask again"}}}};
  return StrCat("event: ", name, "\ndata: ", CompactJson(error), "\n\n");
}

}  // namespace

std::shared_ptr<Chat> Channel::Add(const std::string& name) {
  MutexLock lock(&mutex_);
  if (closed_ || chats_.contains(name)) return nullptr;
  return (chats_[name].chat = std::make_shared<Chat>(name));
}

void Channel::Stop(const std::string& name) {
  std::shared_ptr<Chat> chat;
  {
    MutexLock lock(&mutex_);
    const auto it = chats_.find(name);
    if (it == chats_.end()) return;
    if (it->second.is_over) {
      kept_bytes_ -= it->second.frames.size();
      chats_.erase(it);
      return;
    }
    chat = it->second.chat;
  }
  chat->Leave();
}

bool Channel::Push(const Chat& chat, std::string_view frame) {
  MutexLock lock(&mutex_);
  if (closed_ || chat.gone()) return false;
  Keep(chat.name(), frame);
  if (reader_ != nullptr) unread_.append(frame);
  WakeReader();
  return true;
}

void Channel::Keep(const std::string& name, std::string_view frame) {
  if (!keeps_) return;
  Kept& kept = chats_[name];
  if (kept.is_too_long) return;
  if (kept_bytes_ + frame.size() <= kMaxKeptBytes) {
    kept.frames.append(frame);
    kept_bytes_ += frame.size();
    return;
  }
  kept.is_too_long = true;
  kept_bytes_ -= kept.frames.size();
  kept.frames.clear();
  kept.frames.shrink_to_fit();
}

Task<void> Channel::Room(Chat& chat) {
  while (IsFull() && !chat.gone()) co_await chat.room_or_gone().Wait();
}

bool Channel::IsFull() {
  MutexLock lock(&mutex_);
  return unread_.size() > kMaxUnreadBytes && reader_ != nullptr && !closed_;
}

void Channel::End(const Chat& chat, std::string_view frame) {
  MutexLock lock(&mutex_);
  if (closed_) return;
  if (reader_ != nullptr) unread_.append(frame);
  if (keeps_) {
    Kept& kept = chats_[chat.name()];
    kept.end = frame;
    kept.is_over = true;
  } else {
    chats_.erase(chat.name());
  }
  WakeReader();
}

Channel::Reader Channel::Attach() {
  MutexLock lock(&mutex_);
  WakeReader();  // the former one: it ends
  reader_ = std::make_shared<Signal>();
  unread_.clear();
  if (keeps_) {
    Json names = Json::array();
    for (const auto& [name, kept] : chats_) names.push_back(name);
    unread_ = StrCat("data: ", CompactJson({{"chats", std::move(names)}}), "\n\n");
  }
  for (const auto& [name, kept] : chats_) {
    StrAppend(&unread_, kept.is_too_long ? TooLongFrame(name) : kept.frames, kept.end);
  }
  return reader_;
}

void Channel::Detach(const Reader& reader) {
  MutexLock lock(&mutex_);
  if (reader_ != reader) return;
  WakeReader();
  reader_ = nullptr;
  unread_.clear();
  left_ = std::chrono::steady_clock::now();
  for (const auto& [name, kept] : chats_) kept.chat->room_or_gone().Notify();
}

bool Channel::Take(const Reader& reader, bool draining, std::string* frames) {
  MutexLock lock(&mutex_);
  if (reader_ != reader || closed_) return false;
  *frames = std::exchange(unread_, {});
  if (frames->size() > kMaxUnreadBytes) {
    for (const auto& [name, kept] : chats_) kept.chat->room_or_gone().Notify();
  }
  return !(draining && n_running() == 0 && frames->empty());
}

bool Channel::HasReader() {
  MutexLock lock(&mutex_);
  return reader_ != nullptr;
}

bool Channel::IsTakenFrom(const Reader& reader) {
  MutexLock lock(&mutex_);
  return !closed_ && reader_ != nullptr && reader_ != reader;
}

void Channel::Close() {
  std::map<std::string, Kept> chats;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    chats.swap(chats_);
    WakeReader();
  }
  for (const auto& [name, kept] : chats) kept.chat->Leave();
}

bool Channel::IsForgotten(TimePoint before) {
  MutexLock lock(&mutex_);
  if (closed_) return true;
  if (reader_ != nullptr || n_running() > 0) return false;
  return chats_.empty() || left_ < before;
}

int64_t Channel::n_running() const {
  return std::count_if(chats_.begin(), chats_.end(),
                       [](const auto& entry) { return !entry.second.is_over; });
}

}  // namespace weft::serve
