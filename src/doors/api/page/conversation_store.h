// The page's conversations on disk, so that every browser with the key has them.
//
//   DIR/conversations/@DOMAIN/ID.json   a line "weft-conversation 1 VERSION", then the JSON text
//   DIR/conversations/@DOMAIN/.store    the name of this store, made once
//
// The store does not look into the text. A writer names the version that its change is based on:
// where another browser was first, the write fails and nothing is lost. Files are replaced
// atomically and durably, with mode 0600.
//
// The state directory's lock, which the engine holds, keeps other processes out. A domain's files
// are listed once, when it is first asked for. Any thread; disk work is done under a mutex.
#ifndef WEFT_DOORS_API_PAGE_CONVERSATION_STORE_H_
#define WEFT_DOORS_API_PAGE_CONVERSATION_STORE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/files/file_io.h"
#include "base/mutex.h"
#include "base/status.h"

namespace weft::serve {

struct ConversationLimits {
  int64_t conversation_bytes = 8 << 20;
  int64_t bytes_of_one_key = 512 << 20;
  int64_t conversations_of_one_key = 5000;
};

class ConversationStore {
 public:
  struct Item {
    int64_t version = 0;  // kDamaged: its file cannot be read
    int64_t n_bytes = 0;
  };
  // The version of a file without a valid first line: it is listed, because a browser that did not
  // find it would delete its own copy, and any Put replaces it.
  static constexpr int64_t kDamaged = -1;
  struct Listing {
    std::string store;  // another name: another store, whose versions mean nothing here
    std::string tag;    // the same only while nothing has changed
    std::map<std::string, Item> items;
  };
  struct Conversation {
    int64_t version = 0;
    std::string text;
  };

  explicit ConversationStore(std::string state_dir, const ConversationLimits& limits = {})
      : state_dir_(std::move(state_dir)), limits_(limits) {}

  StatusOr<Listing> List(const std::string& domain);
  // NOT_FOUND if there is none.
  StatusOr<Conversation> Get(const std::string& domain, const std::string& id);
  // Replaces version `based_on`; 0: there is none yet. Returns the new version, which is larger
  // than all before it. ABORTED if another version is there, NOT_FOUND if it was deleted,
  // OUT_OF_RANGE for a text or a store that would be too large.
  StatusOr<int64_t> Put(const std::string& domain, const std::string& id, int64_t based_on,
                        std::string_view text);
  // OK if there is none.
  Status Delete(const std::string& domain, const std::string& id);

 private:
  struct Domain {
    FileDescriptor dir;
    std::string store;
    std::map<std::string, Item> items;
    int64_t n_bytes = 0;
    int64_t last_version = 0;
    int64_t n_changes = 0;
  };

  StatusOr<Domain*> Open(const std::string& domain) WEFT_REQUIRES(mutex_);
  Status CheckRoom(const Domain& domain, const Item& former, int64_t n_bytes) const;

  const std::string state_dir_;
  const ConversationLimits limits_;
  Mutex mutex_;
  std::map<std::string, Domain> domains_ WEFT_GUARDED_BY(mutex_);
};

// 1 to 64 of a-z, 0-9 and '-': a file name everywhere. INVALID_ARGUMENT otherwise.
Status ValidateConversationId(std::string_view id);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_PAGE_CONVERSATION_STORE_H_
