#include "engine/state/prefix_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace weft {

// --- the queue ---------------------------------------------------------------------------

Status PrefixQueue::Take(std::vector<PrefixEvent>* events) {
  std::vector<PrefixEvent> taken;
  bool was_starved = false;
  {
    MutexLock lock(&mutex_);
    WEFT_RETURN_IF_ERROR(end_);
    taken.swap(unread_);
    was_starved = std::exchange(is_starved_, false);
  }
  if (was_starved) wanted_();
  events->insert(events->end(), std::make_move_iterator(taken.begin()),
                 std::make_move_iterator(taken.end()));
  return OkStatus();
}

size_t PrefixQueue::Room() {
  MutexLock lock(&mutex_);
  is_starved_ = unread_.size() >= kFull;
  return kFull - std::min(kFull, unread_.size());
}

bool PrefixQueue::Put(std::vector<PrefixEvent> events, bool has_more) {
  {
    MutexLock lock(&mutex_);
    if (!end_.ok()) return false;
    is_starved_ = has_more;
    if (unread_.empty()) {
      unread_ = std::move(events);
    } else {
      unread_.insert(unread_.end(), std::make_move_iterator(events.begin()),
                     std::make_move_iterator(events.end()));
    }
    if (unread_.size() > kMaxUnread) {
      unread_ = {};
      end_ = ResourceExhausted("cached prefixes change faster than they are read; subscribe again");
    }
  }
  changed_();
  return true;
}

void PrefixQueue::End(Status status) {
  {
    MutexLock lock(&mutex_);
    end_ = std::move(status);
    unread_ = {};
  }
  changed_();
}

// --- the log -----------------------------------------------------------------------------

PrefixLog::~PrefixLog() {
  for (const Reader& reader : readers_) {
    if (const auto queue = reader.queue.lock()) queue->End(Unavailable("the engine has shut down"));
  }
}

uint64_t PrefixLog::Store(CachedPage page, CacheTier tier) {
  tokens_ += std::ssize(page.tokens);
  pages_.emplace_hint(pages_.end(), ++last_,
                      Entry{std::make_shared<const CachedPage>(std::move(page)), tier});
  return last_;
}

void PrefixLog::Remove(uint64_t number) {
  const auto found = pages_.find(number);
  WEFT_CHECK(found != pages_.end(), "only a stored page is removed");
  tokens_ -= std::ssize(found->second.page->tokens);
  for (Reader& reader : readers_) {
    if (number > reader.told) continue;
    reader.events.push_back(
        {.is_stored = false, .tier = found->second.tier, .page = found->second.page});
  }
  pages_.erase(found);
}

bool PrefixLog::Serve(size_t max_pages) {
  bool has_more = false;
  std::erase_if(readers_, [&](Reader& reader) { return !ServeOne(&reader, max_pages, &has_more); });
  return has_more;
}

bool PrefixLog::ServeOne(Reader* reader, size_t max_pages, bool* has_more) {
  const std::shared_ptr<PrefixQueue> queue = reader->queue.lock();
  if (queue == nullptr) return false;
  auto next = pages_.upper_bound(reader->told);
  const size_t room = next == pages_.end() ? 0 : queue->Room();
  for (size_t left = std::min(room, max_pages); left > 0 && next != pages_.end(); --left, ++next) {
    reader->events.push_back({.tier = next->second.tier, .page = next->second.page});
    reader->told = next->first;
  }
  const bool goes_on = next != pages_.end() && room > max_pages;
  *has_more = *has_more || goes_on;
  return reader->events.empty() ||
         queue->Put(std::exchange(reader->events, {}), next != pages_.end() && !goes_on);
}

int64_t PrefixLog::memory_bytes() const {
  // A page with its two counts, its entry here and that of whoever stored it.
  constexpr int64_t kPageBytes = sizeof(CachedPage) + 32 + sizeof(Entry) + 64 + 96;
  return std::ssize(pages_) * kPageBytes + tokens_ * int64_t{sizeof(int32_t)};
}

}  // namespace weft
