// What can be seen of an engine without waiting for it.
//
// The engine thread notes what changed and publishes it as one immutable snapshot, which
// shares with the one before everything that did not change; readers take the snapshot and
// keep it as long as they like.
//
// Publish and what comes before it: engine thread. Latest: any thread.
#ifndef WEFT_ENGINE_ENGINE_VIEW_H_
#define WEFT_ENGINE_ENGINE_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/session_names.h"
#include "weft/engine.h"

namespace weft {

class EngineSnapshot {
 public:
  StatusOr<SessionInfo> Inspect(SessionId id) const;
  StatusOr<SessionId> Find(std::string_view domain, std::string_view name) const;
  // Those with a name, by name.
  std::vector<SessionInfo> List(std::string_view domain) const;
  const EngineStats& stats() const { return stats_; }
  const std::vector<TurnInfo>& turns() const { return turns_; }

 private:
  friend class EngineView;
  // `info.idle_us` is filled in when it is read.
  struct Entry {
    SessionInfo info;
    int64_t idle_since_us = 0;  // 0: it runs
  };
  // By place in the session table: so many entries each, and so many of these each. What a
  // snapshot has is never changed; `version` tells the parts that none has yet.
  static constexpr size_t kFanOut = 64;
  template <typename Part>
  struct Group {
    uint64_t version = 0;
    std::array<std::shared_ptr<const Part>, kFanOut> parts;
  };
  using Chunk = Group<Entry>;
  using Block = Group<Chunk>;

  const Entry* EntryOf(SessionId id) const;
  static SessionInfo InfoOf(const Entry& entry);

  uint16_t tag_ = 0;
  bool has_shut_down_ = false;
  EngineStats stats_;
  std::vector<TurnInfo> turns_;
  std::vector<std::shared_ptr<const Block>> blocks_;
  SessionNames names_;
};

class EngineView {
 public:
  // `tag` as of the engine's SessionTable.
  explicit EngineView(uint16_t tag);

  // --- engine thread; seen from the next Publish on ------------------------------
  // A session is new or has changed. `idle_since_us`: 0 while it runs.
  void Put(const SessionInfo& info, int64_t idle_since_us);
  void Remove(SessionId id);
  // `stats` but for the numbers of sessions, which are known here.
  void Publish(const EngineStats& stats, std::vector<TurnInfo> turns);
  // From now on readers are told that the engine has shut down.
  void Close();

  std::shared_ptr<const EngineSnapshot> Latest() const WEFT_EXCLUDES(mutex_);

 private:
  using Entry = EngineSnapshot::Entry;
  using Block = EngineSnapshot::Block;

  // The place of a session, in parts that no snapshot has.
  std::shared_ptr<const Entry>& At(SessionId id);
  template <typename Part>
  EngineSnapshot::Group<Part>* Own(std::shared_ptr<const EngineSnapshot::Group<Part>>* group) const;
  void TakeOut(std::shared_ptr<const Entry>* place);
  void Count(SessionState state, int64_t n);
  void Swap(std::shared_ptr<const EngineSnapshot> next) WEFT_EXCLUDES(mutex_);

  // What the next snapshot will have, and its number.
  EngineSnapshot next_;
  uint64_t version_ = 1;

  mutable Mutex mutex_;
  std::shared_ptr<const EngineSnapshot> latest_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_VIEW_H_
