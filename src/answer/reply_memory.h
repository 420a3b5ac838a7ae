// The replies of recent conversations, so that a client's next request can be rendered with what
// the model wrote instead of what the client sends back (answer/chat/own_reply.h).
//
// A reply is found by the ids of its calls, or by its visible text and the message that it
// answers. Each is held once, most recently used first. The memory is bounded: the domain that
// holds the most forgets its least recently used reply first, and a conversation with a forgotten
// reply is rendered from what the client sends. Domains cannot see each other's replies. Any
// thread.
#ifndef WEFT_ANSWER_REPLY_MEMORY_H_
#define WEFT_ANSWER_REPLY_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "answer/chat/conversation.h"
#include "answer/chat/own_reply.h"
#include "base/mutex.h"

namespace weft::serve {

class ReplyMemory {
 public:
  // What a reply answers.
  struct Place {
    // A hash of tools and messages, in which known replies count as themselves, however a client
    // writes them.
    uint64_t conversation = 0;
    uint64_t last_message = 0;
  };
  struct Found {
    std::vector<OwnWords> own;  // one per message; empty if no message is known
    Place place;                // the place of the reply to the conversation
  };
  struct Record {
    std::string domain;
    std::string session;  // empty: anonymous
    Place place;
    std::shared_ptr<const OwnReply> reply;
  };

  explicit ReplyMemory(size_t max_bytes);

  // What happens is told to these, from any thread. Call before others use the memory.
  struct Listener {
    std::function<void(const Record&)> remembered;
    std::function<void(std::string_view domain, std::string_view session)> forgotten;
  };
  void SetListener(Listener listener) { listener_ = std::move(listener); }

  Found Find(std::string_view domain, const Conversation& conversation);
  // Replaces a reply with the same id.
  void Remember(Record record);
  // Those of one session: it was deleted.
  void Forget(std::string_view domain, std::string_view session);

  size_t size() const;
  size_t bytes() const;
  // All, the least recently used first.
  std::vector<Record> All() const;

 private:
  struct Entry {
    Record record;
    std::vector<uint64_t> keys;
    size_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  std::shared_ptr<const OwnReply> Match(std::string_view domain, const ChatMessage& message,
                                        const Place& place);
  Entries::iterator Best(std::string_view domain, const ChatMessage& message, const Place& place,
                         const std::vector<uint64_t>& keys) WEFT_REQUIRES(mutex_);
  void Erase(Entries::iterator entry) WEFT_REQUIRES(mutex_);
  void Trim() WEFT_REQUIRES(mutex_);

  const size_t max_bytes_;
  Listener listener_;  // constant once others use the memory
  mutable Mutex mutex_;
  Entries entries_ WEFT_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_multimap<uint64_t, Entries::iterator> by_key_ WEFT_GUARDED_BY(mutex_);
  std::map<std::string, size_t, std::less<>> bytes_of_ WEFT_GUARDED_BY(mutex_);  // by domain
  size_t bytes_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_REPLY_MEMORY_H_
