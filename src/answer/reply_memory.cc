#include "answer/reply_memory.h"

#include <algorithm>
#include <utility>

#include "nlohmann/json.hpp"

namespace weft::serve {
namespace {

// Texts hashed one after another, so that their borders count.
class Hasher {
 public:
  explicit Hasher(uint64_t seed) : hash_(seed) {}
  Hasher& Add(std::string_view text) { return Add(HashOfPrompt(text)).Add(text.size()); }
  Hasher& Add(uint64_t value) {
    const uint64_t both[] = {hash_, value};
    hash_ = HashOfPrompt({reinterpret_cast<const char*>(both), sizeof(both)});
    return *this;
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_;
};

enum Hashed : uint64_t { kTools, kOwn, kOther, kById, kByText };

uint64_t HashOf(const ToolList& tools) {
  Hasher hasher(kTools);
  for (const auto& tool : tools) hasher.Add(tool->definition.dump());
  return hasher.hash();
}

uint64_t HashOf(const ChatMessage& message) {
  Hasher hasher(static_cast<uint64_t>(message.role));
  for (const std::string& part : message.parts) hasher.Add(part);
  hasher.Add(message.reasoning);
  for (const ToolCall& call : message.calls) {
    hasher.Add(call.name).Add(call.arguments.dump());
  }
  return hasher.hash();
}

// At most this many replies with the same key are compared: it bounds the time under the lock.
constexpr int kMaxAlike = 64;

// The first one is the most telling.
std::vector<uint64_t> KeysOf(std::string_view domain, std::string_view content,
                             const std::vector<ToolCall>& calls, uint64_t last_message) {
  Hasher text(kByText);
  text.Add(domain).Add(last_message).Add(Trimmed(content));
  for (const ToolCall& call : calls) text.Add(call.name);
  std::vector<uint64_t> keys = {text.hash()};
  for (const ToolCall& call : calls) {
    if (!call.id.empty()) keys.push_back(Hasher(kById).Add(domain).Add(call.id).hash());
  }
  return keys;
}

size_t BytesOf(const ReplyMemory::Record& record) {
  const OwnReply& reply = *record.reply;
  size_t bytes = sizeof(ReplyMemory::Record) + sizeof(OwnReply) + 256 + record.domain.size() +
                 record.session.size() + reply.reasoning.size() + reply.content.size() +
                 reply.text.size() + reply.tokens.size() * sizeof(TokenId) +
                 reply.prompt.tail.size();
  for (const ToolCall& call : reply.calls) {
    bytes += 2 * call.arguments.dump().size() + call.name.size() + call.id.size() + 256;
  }
  return bytes;
}

}  // namespace

ReplyMemory::ReplyMemory(size_t max_bytes) : max_bytes_(max_bytes) {}

ReplyMemory::Found ReplyMemory::Find(std::string_view domain, const Conversation& conversation) {
  Found found;
  Place& place = found.place;
  place.conversation = HashOf(conversation.tools);
  std::vector<OwnWords> own;
  bool has_any = false;
  for (const ChatMessage& message : conversation.messages) {
    OwnWords words;
    if (message.role == Role::kAssistant) words.reply = Match(domain, message, place);
    words.is_in_place = words.reply != nullptr && words.reply->conversation == place.conversation;
    has_any = has_any || words.reply != nullptr;
    Hasher next(place.conversation);
    if (words.reply != nullptr) {
      next.Add(kOwn).Add(words.reply->id);
    } else {
      next.Add(kOther).Add(HashOf(message));
    }
    place.conversation = next.hash();
    place.last_message =
        Hasher(static_cast<uint64_t>(message.role)).Add(Trimmed(TextOf(message))).hash();
    own.push_back(std::move(words));
  }
  if (has_any) found.own = std::move(own);
  return found;
}

std::shared_ptr<const OwnReply> ReplyMemory::Match(std::string_view domain,
                                                   const ChatMessage& message, const Place& place) {
  const std::vector<uint64_t> keys =
      KeysOf(domain, TextOf(message), message.calls, place.last_message);
  MutexLock lock(&mutex_);
  const auto best = Best(domain, message, place, keys);
  if (best == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, best);
  return best->record.reply;
}

// Several conversations may have had the same reply: the one that goes on here is meant, or one
// that answered the same message; or any, if its call's id is found nowhere else.
ReplyMemory::Entries::iterator ReplyMemory::Best(std::string_view domain,
                                                 const ChatMessage& message, const Place& place,
                                                 const std::vector<uint64_t>& keys) {
  const auto rank_of = [&](const Record& record) {
    if (record.domain != domain || !SaysTheSame(message, *record.reply)) return 0;
    if (record.reply->conversation == place.conversation) return 3;
    return record.place.last_message == place.last_message ? 2 : 1;
  };
  auto best = entries_.end();
  int best_rank = 0, n_elsewhere = 0;
  for (const uint64_t key : keys) {
    if (best_rank > 1) break;
    int left = kMaxAlike;
    const auto [begin, end] = by_key_.equal_range(key);
    for (auto it = begin; it != end && left > 0; ++it, --left) {
      if (it->second == best) continue;
      const int rank = rank_of(it->second->record);
      if (rank == 1) ++n_elsewhere;
      if (rank <= best_rank) continue;
      best = it->second;
      best_rank = rank;
    }
  }
  return best_rank == 1 && n_elsewhere > 1 ? entries_.end() : best;
}

void ReplyMemory::Remember(Record record) {
  Entry entry{.record = std::move(record)};
  const Record& of = entry.record;
  entry.keys = KeysOf(of.domain, of.reply->content, of.reply->calls, of.place.last_message);
  entry.bytes = BytesOf(of);
  if (listener_.remembered) listener_.remembered(of);
  MutexLock lock(&mutex_);
  const auto [begin, end] = by_key_.equal_range(entry.keys.front());
  const auto same = std::find_if(
      begin, end, [&](const auto& e) { return e.second->record.reply->id == of.reply->id; });
  if (same != end) Erase(same->second);
  bytes_ += entry.bytes;
  bytes_of_[of.domain] += entry.bytes;
  entries_.push_front(std::move(entry));
  for (const uint64_t key : entries_.front().keys) by_key_.emplace(key, entries_.begin());
  Trim();
}

void ReplyMemory::Forget(std::string_view domain, std::string_view session) {
  {
    MutexLock lock(&mutex_);
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto entry = it++;
      if (entry->record.domain == domain && entry->record.session == session) Erase(entry);
    }
  }
  if (listener_.forgotten) listener_.forgotten(domain, session);
}

void ReplyMemory::Erase(Entries::iterator entry) {
  for (const uint64_t key : entry->keys) {
    const auto [begin, end] = by_key_.equal_range(key);
    const auto it = std::find_if(begin, end, [&](const auto& e) { return e.second == entry; });
    if (it != end) by_key_.erase(it);
  }
  bytes_ -= entry->bytes;
  const auto of = bytes_of_.find(entry->record.domain);
  of->second -= entry->bytes;
  if (of->second == 0) bytes_of_.erase(of);
  entries_.erase(entry);
}

void ReplyMemory::Trim() {
  while (bytes_ > max_bytes_) {
    const auto most =
        std::ranges::max_element(bytes_of_, {}, [](const auto& domain) { return domain.second; });
    const auto last = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
      return entry.record.domain == most->first;
    });
    Erase(std::prev(last.base()));
  }
}

size_t ReplyMemory::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

size_t ReplyMemory::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

std::vector<ReplyMemory::Record> ReplyMemory::All() const {
  MutexLock lock(&mutex_);
  std::vector<Record> all;
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) all.push_back(it->record);
  return all;
}

}  // namespace weft::serve
