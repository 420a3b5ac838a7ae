// What readers can see of an engine without waiting for it.
//
// The engine thread records changes and publishes them as an immutable snapshot that shares
// everything unchanged with the previous one; readers take the snapshot and keep it as long as they
// like.
//
// EngineView: Latest may be called from any thread, everything else from the engine thread only.
#ifndef WEFT_ENGINE_SESSIONS_ENGINE_VIEW_H_
#define WEFT_ENGINE_SESSIONS_ENGINE_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/sessions/session_names.h"
#include "weft/engine.h"

namespace weft {

class EngineSnapshot {
 public:
  StatusOr<SessionInfo> Inspect(SessionId id) const;
  StatusOr<SessionId> Find(std::string_view domain, std::string_view name) const;
  // The named sessions of the domain, by name.
  std::vector<SessionInfo> List(std::string_view domain) const;
  const EngineStats& stats() const { return stats_; }
  const std::vector<TurnInfo>& turns() const { return turns_; }

 private:
  friend class EngineView;
  // `info.idle_us` is filled in when the entry is read.
  struct Entry {
    SessionInfo info;
    int64_t idle_since_us = 0;  // 0: running
  };
  // Entries by place in the session table, in a tree with this fan-out. Parts in a snapshot are
  // immutable; `version` marks the parts that are in no snapshot yet.
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
  // `tag`: see SessionTable.
  explicit EngineView(uint16_t tag);

  // --- engine thread; visible from the next Publish on ---------------------------
  // A session is new or has changed. `idle_since_us`: 0 while it runs.
  void Put(const SessionInfo& info, int64_t idle_since_us);
  void Remove(SessionId id);
  // `stats` without the session counts, which the view fills in.
  void Publish(const EngineStats& stats, std::vector<TurnInfo> turns);
  // From now on readers are told that the engine has shut down.
  void Close();

  std::shared_ptr<const EngineSnapshot> Latest() const WEFT_EXCLUDES(mutex_);

 private:
  using Entry = EngineSnapshot::Entry;
  using Block = EngineSnapshot::Block;

  // The session's entry, in parts that are in no snapshot yet.
  std::shared_ptr<const Entry>& At(SessionId id);
  template <typename Part>
  EngineSnapshot::Group<Part>* Own(std::shared_ptr<const EngineSnapshot::Group<Part>>* group) const;
  void TakeOut(std::shared_ptr<const Entry>* place);
  void Count(SessionState state, int64_t n);
  void Swap(std::shared_ptr<const EngineSnapshot> next) WEFT_EXCLUDES(mutex_);

  // The next snapshot and its number.
  EngineSnapshot next_;
  uint64_t version_ = 1;

  mutable Mutex mutex_;
  std::shared_ptr<const EngineSnapshot> latest_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_ENGINE_VIEW_H_
