// The cached pages of one tree of prefixes, as readers outside the engine are told of them.
//
// Pages are numbered in the order in which they are stored, and a page is stored after its parent
// and removed before it. So this order is one in which any reader can be told: a new one begins at
// the first page, is served a piece at a time, and hears of a removal only if it knows the page.
//
// PrefixLog: engine thread. PrefixQueue: see its functions.
#ifndef WEFT_ENGINE_STATE_PREFIX_LOG_H_
#define WEFT_ENGINE_STATE_PREFIX_LOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "weft/prefix_events.h"

namespace weft {

// Between the engine and one reader. Neither holds its lock for longer than it takes to exchange a
// list.
class PrefixQueue final : public PrefixFeed {
 public:
  // Stored pages wait in the log while the reader has this many events to read.
  static constexpr size_t kFull = size_t{1} << 12;
  // Removals cannot wait: a reader that has this many events to read is too slow.
  static constexpr size_t kMaxUnread = size_t{1} << 16;

  // Both functions may be called on any thread, and must return at once. `changed`: there is
  // something to take. `wanted`: the engine may serve more, or the reader has left.
  PrefixQueue(std::function<void()> changed, std::function<void()> wanted)
      : changed_(std::move(changed)), wanted_(std::move(wanted)) {}
  ~PrefixQueue() override { wanted_(); }

  // --- the reader ------------------------------------------------------------------------
  Status Take(std::vector<PrefixEvent>* events) override;

  // --- engine thread ---------------------------------------------------------------------
  // How many more stored pages it takes. If none, the next Take asks for more.
  size_t Room();
  // `has_more`: the next Take asks for more, too. False if the reader is too slow: nothing is put
  // any more.
  bool Put(std::vector<PrefixEvent> events, bool has_more);
  void End(Status status);

 private:
  const std::function<void()> changed_, wanted_;
  Mutex mutex_;
  std::vector<PrefixEvent> unread_ WEFT_GUARDED_BY(mutex_);
  bool is_starved_ WEFT_GUARDED_BY(mutex_) = false;
  Status end_ WEFT_GUARDED_BY(mutex_);
};

class PrefixLog {
 public:
  PrefixLog() = default;
  PrefixLog(const PrefixLog&) = delete;
  PrefixLog& operator=(const PrefixLog&) = delete;
  ~PrefixLog();  // ends its readers' queues

  // Returns the page's number. REQUIRES: its parent is stored, in the same tier.
  uint64_t Store(CachedPage page, CacheTier tier);
  // REQUIRES: no page of the same tier has it as its parent.
  void Remove(uint64_t number);

  void Add(const std::shared_ptr<PrefixQueue>& queue) { readers_.push_back({.queue = queue}); }
  // Gives every reader up to `max_pages` pages and all removals. True if more can be given now.
  bool Serve(size_t max_pages);
  bool has_readers() const { return !readers_.empty(); }
  int64_t memory_bytes() const;  // roughly

 private:
  struct Entry {
    std::shared_ptr<const CachedPage> page;
    CacheTier tier = CacheTier::kMemory;
  };
  struct Reader {
    std::weak_ptr<PrefixQueue> queue;
    uint64_t told = 0;                     // all numbers up to this one
    std::vector<PrefixEvent> events = {};  // not in the queue yet
  };
  // False if the reader is gone.
  bool ServeOne(Reader* reader, size_t max_pages, bool* has_more);

  std::map<uint64_t, Entry> pages_;
  uint64_t last_ = 0;
  int64_t tokens_ = 0;
  std::vector<Reader> readers_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_PREFIX_LOG_H_
