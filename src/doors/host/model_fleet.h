// The models of one server: which of them are loaded, and which one has to go when memory is short.
//
//   ModelFleet fleet({.memory_bytes = ...}, std::move(models));
//   fleet.Start();
//   auto using = fleet.Use({.name = "haiku"}, responder.cancellation());
//   const StatusOr<ModelLease> lease = co_await using;   // loads it if need be
//   (*lease)->host() ...                                 // stays loaded while the lease is held
//
// One thread of the fleet loads and unloads, one model at a time. To make room it unloads the model
// that was used least recently, an idle one before a busy one: of a busy one the running requests
// end first, and new ones wait until it is back. A pinned model stays. Before a model goes, its
// sessions and prefixes are parked; loading it restores them.
//
// Leases end before the fleet does: destroy the front ends first. Any thread.
#ifndef WEFT_DOORS_HOST_MODEL_FLEET_H_
#define WEFT_DOORS_HOST_MODEL_FLEET_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "async/task.h"
#include "base/mutex.h"
#include "base/status.h"
#include "doors/host/host.h"
#include "doors/http/router.h"
#include "model/formats/model_facts.h"

namespace weft::serve {

// A model in memory. Destroying it frees that.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;

  virtual Host& host() = 0;
  // The routes that answer with this model.
  virtual const Router& router() const = 0;
  // Weights, the limit for sessions, and scratch.
  virtual int64_t memory_bytes() const = 0;
  // Ends what runs, at the latest after `grace`, and saves sessions and prefixes. May be called
  // again with less grace while the first call waits.
  virtual Status Park(std::chrono::milliseconds grace) = 0;
};

using ModelLease = std::shared_ptr<LoadedModel>;
struct NamedLease {
  std::string name;  // the model's
  ModelLease lease;
};

// What the operator says of a model.
struct FleetModel {
  using Load = std::function<StatusOr<std::unique_ptr<LoadedModel>>(
      const std::function<void(double fraction)>& told)>;

  // The name, then the aliases.
  std::vector<std::string> AllNames() const;

  std::string name;
  std::vector<std::string> aliases = {};
  bool pinned = false;  // loaded at the start, never unloaded
  bool eager = false;   // loaded at the start if there is room
  // Unloaded after this long without a request; negative: never; unset: as for all.
  std::optional<std::chrono::milliseconds> idle_unload = std::nullopt;
  int64_t needs_bytes = 0;   // an estimate of LoadedModel::memory_bytes
  std::string problem = {};  // why it can never be loaded; empty: it can
  Load load;
  // Its file and flags as text: models of the same name and source are the same model.
  std::string source = {};
  std::string path = {};  // its file's
  bool is_added = false;  // after the start, so Replace keeps it
  // For lists, while it is not loaded.
  std::string file_name = {};
  int64_t file_bytes = 0;
  int64_t file_time_s = 0;  // its last change, seconds since 1970
  ModelFacts facts = {};
};

// Which model a request wants, and what that means for the model.
struct ModelWish {
  std::string name = {};  // a name or an alias; empty: the first model
  // Replaces its idle_unload from now on; 0: unload it when this request has ended.
  std::optional<std::chrono::milliseconds> keep_alive = std::nullopt;
  bool may_load = true;  // false: refused unless it is loaded
  bool counts = true;    // false: neither loads the model nor keeps it loaded
};

class ModelFleet {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    int64_t memory_bytes = 0;  // for all models together
    std::chrono::milliseconds idle_unload{-1};
    std::chrono::milliseconds load_wait{120'000};  // how long a request waits for its model
    std::chrono::milliseconds park_grace{5'000};   // for what runs without a lease
    std::function<void(const std::string&)> on_notice = {};
  };

  enum class State { kUnloaded, kWaiting, kLoading, kLoaded, kUnloading };

  struct Info {
    std::shared_ptr<const FleetModel> model;
    State state = State::kUnloaded;
    std::string problem;       // why the last attempt to load it failed; empty: it did not
    double loaded_share = 0;   // while loading
    int64_t memory_bytes = 0;  // what it counts for
    int requests = 0;          // that hold it
    int waiting = 0;           // that wait for it
    int64_t loads = 0, failed_loads = 0;              // so far
    Clock::duration load_time{0};                     // of all `loads` together
    std::optional<int64_t> expires_s = std::nullopt;  // when it is unloaded if nobody asks
  };

  enum class Happening { kState, kDownloading, kDownloaded, kDownloadFailed, kRemoved };
  struct Event {
    int64_t number = 0;
    std::string model;
    Happening what = Happening::kState;
    State state = State::kUnloaded;
    double loaded_share = 0;
    std::string problem = {};
    int64_t done_bytes = 0, total_bytes = 0;  // for downloads
  };

  ModelFleet(Options options, std::vector<FleetModel> models);
  ~ModelFleet();  // same as Drain(0)

  // Call once.
  void Start();
  // Whether the models that are loaded at the start are, as far as they can be.
  bool started() const;

  // Tells a waiting request why it waits: `tell` is called after `first`, then every `interval`.
  struct Signs {
    std::chrono::milliseconds first{0}, interval{0};
    std::function<void(std::string_view why)> tell = {};
  };
  // NOT_FOUND for an unknown name; UNAVAILABLE while it is not loaded, or cannot be, with the
  // reason; INVALID_ARGUMENT if it would have to be loaded, and may not. Runs in a TaskPool; gives
  // up when `gone` is requested.
  Task<StatusOr<ModelLease>> Use(ModelWish wish, std::stop_token gone, Signs signs);
  Task<StatusOr<ModelLease>> Use(ModelWish wish, std::stop_token gone) {
    return Use(std::move(wish), std::move(gone), Signs());
  }
  // Without loading it and without counting as its use; null if it is not loaded.
  ModelLease Peek(std::string_view name);
  // The same for something that is no request, such as a door to this model alone.
  ModelLease Keep(std::string_view name);
  // As Peek, all that are loaded.
  std::vector<NamedLease> PeekAll();
  // Begins to load or unload it. FAILED_PRECONDITION if that is done already, or cannot be: its
  // file is broken, or it is pinned. Load, Unload and Remove take an exact name or alias.
  Status Load(std::string_view name);
  Status Unload(std::string_view name);

  // One more model. ALREADY_EXISTS if one of its names or its directory is taken.
  Status Add(FleetModel model);
  // Whether Add would take a model of that name.
  Status MayAdd(std::string_view name) const;
  // Takes a model out of the lists. Its running requests end, those that wait for it are refused,
  // and when it is unloaded, `then` is called on the fleet's thread, or by Drain.
  // FAILED_PRECONDITION if it is pinned.
  Status Remove(std::string_view name, std::function<void()> then = {});
  // Adds new models, replaces those of another source, and removes those that are not in the list,
  // except added ones.
  Status Replace(std::vector<FleetModel> models);
  // Adds an event about a download.
  void NoteDownload(Event event);

  std::vector<Info> List() const;
  StatusOr<Info> Find(std::string_view name) const;
  // By its exact name or alias.
  StatusOr<Info> FindExactly(std::string_view name) const;
  // What happened after the event of that number; 0: all that is remembered.
  std::vector<Event> EventsSince(int64_t number) const;
  // Calls `wake` at each event while the result lives. It must return at once, and not use the
  // fleet.
  [[nodiscard]] std::shared_ptr<void> WatchEvents(std::function<void()> wake);
  int64_t memory_bytes() const { return options_.memory_bytes; }

  // Lends and loads nothing more, and parks every model. A second call may give less grace.
  Status Drain(std::chrono::milliseconds grace);

 private:
  // A request that waits for a model. It gets its lease before the thread looks for a model that
  // could go: otherwise two that are wanted could displace each other without serving anybody.
  struct Waiter {
    std::function<void()> wake;
    ModelWish wish;
    ModelLease lease = nullptr;
  };
  struct Member : std::enable_shared_from_this<Member> {
    std::shared_ptr<const FleetModel> model;
    std::string directory = {};            // of its sessions: a name
    bool is_gone = false;                  // removed
    std::function<void()> when_gone = {};  // see Remove
    State state = State::kUnloaded;
    bool is_asked = false;  // by Load or at the start, rather than by requests
    bool yields = false;    // unloading to make room, which may turn out not to be needed
    std::string problem = {};
    Clock::time_point failed_at = {};
    double share = 0, noted_share = 0;
    int64_t bytes = 0;
    int leases = 0;
    int keepers = 0;  // among the leases, those of Keep
    int64_t loads = 0, failed_loads = 0;
    Clock::time_point load_begun = {};
    Clock::duration load_time{0};
    Clock::time_point used_at = {};
    std::optional<std::chrono::milliseconds> keep_alive = std::nullopt;
    std::shared_ptr<LoadedModel> loaded = nullptr;
    std::list<Waiter> waiting = {};
  };
  class Waiting;

  // By its exact name or alias. Null if there is none.
  Member* FindNamed(std::string_view name) const WEFT_REQUIRES(mutex_);
  // The same for requests: an empty name means the first model, and a final ":latest" is ignored.
  Member* FindMember(std::string_view name) const WEFT_REQUIRES(mutex_);
  Status UnknownName(std::string_view name) const WEFT_REQUIRES(mutex_);
  void AddMember(FleetModel model) WEFT_REQUIRES(mutex_);
  void RemoveMember(Member* member) WEFT_REQUIRES(mutex_);
  Status CheckNames(const FleetModel& model) const WEFT_REQUIRES(mutex_);
  StatusOr<ModelLease> TryTake(Member* member, const ModelWish& wish);
  ModelLease LendFor(Member* member, const ModelWish& wish) WEFT_REQUIRES(mutex_);
  ModelLease Lend(Member* member, bool counts) WEFT_REQUIRES(mutex_);
  void Release(Member* member, bool counts);
  Status NotYet(const Member& member) const;

  void Work();
  void AskToLoad(Member* member) WEFT_REQUIRES(mutex_);
  using Loaded = StatusOr<std::unique_ptr<LoadedModel>>;
  void LoadNext() WEFT_REQUIRES(mutex_);
  Loaded RunLoad(Member* member) WEFT_EXCLUDES(mutex_);
  void EndLoad(Member* member, Loaded loaded) WEFT_REQUIRES(mutex_);
  Status MakeRoom(Member* member) WEFT_REQUIRES(mutex_);
  Status ChooseToYield(const Member& member) WEFT_REQUIRES(mutex_);
  bool UnloadOne() WEFT_REQUIRES(mutex_);
  bool ForgetGone() WEFT_REQUIRES(mutex_);
  bool IsGoneUnloading(const Member& member) const WEFT_REQUIRES(mutex_);
  bool TrimToBudget() WEFT_REQUIRES(mutex_);
  void FinishUnload(Member* member) WEFT_REQUIRES(mutex_);
  void KeepYielding() WEFT_REQUIRES(mutex_);
  std::chrono::milliseconds IdleLimit(const Member& member) const WEFT_REQUIRES(mutex_);
  Clock::time_point NextExpiry() const WEFT_REQUIRES(mutex_);
  void SetState(Member* member, State state) WEFT_REQUIRES(mutex_);
  void Note(const Member& member) WEFT_REQUIRES(mutex_);
  void Note(Event event) WEFT_REQUIRES(mutex_);
  int64_t UsedBytes() const WEFT_REQUIRES(mutex_);
  Info InfoOf(const Member& member) const WEFT_REQUIRES(mutex_);
  bool IsWanted(const Member& member) const WEFT_REQUIRES(mutex_);
  // Lends it to those that wait, if it is loaded, and wakes them.
  void ServeWaiting(Member* member) WEFT_REQUIRES(mutex_);
  Status ParkAll(std::chrono::milliseconds grace);
  void TellGone() WEFT_EXCLUDES(mutex_);
  void Tell(const std::string& text) const;

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;  // there is work for the thread
  // Only the thread erases members, when nothing points to them any more.
  std::vector<std::shared_ptr<Member>> members_ WEFT_GUARDED_BY(mutex_);
  std::deque<Member*> to_load_ WEFT_GUARDED_BY(mutex_);
  std::deque<Event> events_ WEFT_GUARDED_BY(mutex_);
  int64_t last_event_ WEFT_GUARDED_BY(mutex_) = 0;
  std::list<std::function<void()>> watchers_ WEFT_GUARDED_BY(mutex_);
  bool started_ WEFT_GUARDED_BY(mutex_) = false;
  bool draining_ WEFT_GUARDED_BY(mutex_) = false;
  bool is_working_ WEFT_GUARDED_BY(mutex_) = false;  // the thread
  std::thread thread_;
};

// "unloaded", "loading", "loaded": llama-server's words.
std::string_view NameOf(ModelFleet::State state);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_MODEL_FLEET_H_
