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
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "weft/engine.h"

namespace weft {

class EngineSnapshot {
 public:
  // Waits for nobody, but looks at every session: up to so many steps for those by name.
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
  static constexpr size_t kChunk = 64;
  // By index of the session table.
  using Chunk = std::array<std::shared_ptr<const Entry>, kChunk>;

  static SessionInfo InfoOf(const Entry& entry);
  void ForEach(const std::function<void(const Entry&)>& visit) const;

  uint16_t tag_ = 0;
  bool has_shut_down_ = false;
  EngineStats stats_;
  std::vector<TurnInfo> turns_;
  std::vector<std::shared_ptr<const Chunk>> chunks_;
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
  using Chunk = EngineSnapshot::Chunk;

  // The place of a session, in a chunk that no snapshot has.
  std::shared_ptr<const Entry>& At(SessionId id);
  void Count(SessionState state, int64_t n);
  void Swap(std::shared_ptr<const EngineSnapshot> next) WEFT_EXCLUDES(mutex_);

  // What the next snapshot will have, and which of its chunks are this one's alone.
  EngineSnapshot next_;
  std::vector<std::shared_ptr<Chunk>> own_chunks_;

  mutable Mutex mutex_;
  std::shared_ptr<const EngineSnapshot> latest_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_VIEW_H_
