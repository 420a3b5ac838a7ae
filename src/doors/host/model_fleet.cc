#include "doors/host/model_fleet.h"

#include <algorithm>
#include <utility>

#include "async/signal.h"
#include "base/clock.h"
#include "base/strings.h"
#include "doors/host/model_host.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;

// After a model could not be loaded, until a request makes the fleet try again: each attempt may
// cost other models their place.
constexpr std::chrono::seconds kRetryAfter{30};
constexpr size_t kMaxEvents = 256;

bool IsNameOf(std::string_view name, const FleetModel& model) {
  return name == model.name || std::ranges::count(model.aliases, name) > 0;
}

}  // namespace

std::vector<std::string> FleetModel::AllNames() const {
  std::vector<std::string> names = {name};
  names.insert(names.end(), aliases.begin(), aliases.end());
  return names;
}

std::string_view NameOf(ModelFleet::State state) {
  switch (state) {
    case ModelFleet::State::kUnloaded:
      return "unloaded";
    case ModelFleet::State::kWaiting:
    case ModelFleet::State::kLoading:
      return "loading";
    case ModelFleet::State::kLoaded:
      return "loaded";
    case ModelFleet::State::kUnloading:
      return "unloading";
  }
  return "";
}

// --- requests ----------------------------------------------------------------------------

// A request's place among those that wait: the model is wanted while there is one.
class ModelFleet::Waiting {
 public:
  Waiting(ModelFleet* fleet, std::shared_ptr<Member> member, Waiter waiter)
      : fleet_(*fleet), kept_(std::move(member)), member_(*kept_) {
    MutexLock lock(&fleet_.mutex_);
    place_ = member_.waiting.insert(member_.waiting.end(), std::move(waiter));
  }
  // Releases a lease that nobody took, after unlocking: Release locks again.
  ~Waiting() {
    ModelLease unused;
    MutexLock lock(&fleet_.mutex_);
    unused = std::move(place_->lease);
    member_.waiting.erase(place_);
    fleet_.changed_.NotifyAll();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // The loan it has; null if none yet.
  ModelLease Take() {
    MutexLock lock(&fleet_.mutex_);
    return std::exchange(place_->lease, nullptr);
  }

 private:
  ModelFleet& fleet_;
  const std::shared_ptr<Member> kept_;
  Member& member_;
  std::list<Waiter>::iterator place_;
};

ModelFleet::ModelFleet(Options options, std::vector<FleetModel> models)
    : options_(std::move(options)) {
  MutexLock lock(&mutex_);
  for (FleetModel& model : models) AddMember(std::move(model));
}

ModelFleet::~ModelFleet() {
  (void)Drain(milliseconds(0));
  if (thread_.joinable()) thread_.join();
}

ModelFleet::Member* ModelFleet::FindNamed(std::string_view name) const {
  for (const auto& member : members_) {
    if (!member->is_gone && IsNameOf(name, *member->model)) return member.get();
  }
  return nullptr;
}

ModelFleet::Member* ModelFleet::FindMember(std::string_view name) const {
  for (const auto& member : members_) {
    if (name.empty() && !member->is_gone) return member.get();
  }
  if (Member* const named = FindNamed(name)) return named;
  // Ollama's clients add the tag.
  constexpr std::string_view kLatest = ":latest";
  if (!name.ends_with(kLatest) || name.size() == kLatest.size()) return nullptr;
  return FindMember(name.substr(0, name.size() - kLatest.size()));
}

Status ModelFleet::UnknownName(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& member : members_) {
    if (!member->is_gone) names.push_back(Printable(member->model->name, 100));
  }
  return NotFound("the model ", Printable(name, 200), " is not served here; there are ",
                  StrJoin(names, ", "));
}

Status ModelFleet::NotYet(const Member& member) const {
  MutexLock lock(&mutex_);
  const std::string name = Printable(member.model->name, 200);
  if (member.state != State::kLoading) return Unavailable("the model ", name, " waits for memory");
  return Unavailable("the model ", name, " is loading (", static_cast<int>(member.share * 100),
                     " %)");
}

ModelLease ModelFleet::Lend(Member* member, bool counts) {
  ++member->leases;
  if (counts) member->used_at = Clock::now();
  return {member->loaded.get(), [this, kept = member->shared_from_this(), counts](LoadedModel*) {
            Release(kept.get(), counts);
          }};
}

ModelLease ModelFleet::LendFor(Member* member, const ModelWish& wish) {
  if (wish.counts) member->keep_alive = wish.keep_alive;
  return Lend(member, wish.counts);
}

void ModelFleet::Release(Member* member, bool counts) {
  MutexLock lock(&mutex_);
  --member->leases;
  if (counts) member->used_at = Clock::now();
  changed_.NotifyAll();
}

// The lease; null if the request has to wait.
StatusOr<ModelLease> ModelFleet::TryTake(Member* member, const ModelWish& wish) {
  MutexLock lock(&mutex_);
  const std::string name = Printable(member->model->name, 200);
  if (draining_) return Unavailable("the server is shutting down");
  if (member->is_gone) return NotFound("the model ", name, " is not served any more");
  if (member->state == State::kLoaded) {
    return LendFor(member, wish);
  }
  if (member->state != State::kUnloaded) return ModelLease();
  const bool never = !member->model->problem.empty();
  if (never || (!member->problem.empty() && Clock::now() < member->failed_at + kRetryAfter)) {
    return Unavailable("the model ", name, " cannot be loaded: ", member->problem);
  }
  if (!wish.counts) return Unavailable("the model ", name, " is not loaded");
  if (!wish.may_load) {
    return InvalidArgument("the model ", name,
                           " is not loaded, and this request may not load it; "
                           "load it with POST /models/load, or send ?autoload=true");
  }
  AskToLoad(member);
  return ModelLease();
}

Task<StatusOr<ModelLease>> ModelFleet::Use(ModelWish wish, std::stop_token gone, Signs signs) {
  std::shared_ptr<Member> member;
  {
    MutexLock lock(&mutex_);
    Member* const found = FindMember(wish.name);
    if (found == nullptr) co_return UnknownName(wish.name);
    member = found->shared_from_this();
  }
  Signal signal;
  const std::stop_callback<std::function<void()>> on_gone(gone, signal.Notifier());
  Waiting waiting(this, member, {.wake = signal.Notifier(), .wish = wish});
  const auto deadline = Clock::now() + options_.load_wait;
  auto next_sign = signs.tell ? Clock::now() + signs.first : deadline;
  while (true) {
    StatusOr<ModelLease> lease = waiting.Take();
    if (*lease == nullptr) lease = TryTake(member.get(), wish);
    if (!lease.ok() || *lease != nullptr) co_return lease;
    if (gone.stop_requested()) co_return absl::CancelledError("the client has left");
    const bool in_time = co_await signal.WaitUntil(std::min(deadline, next_sign));
    if (in_time) continue;
    const Status why = NotYet(*member);
    if (Clock::now() >= deadline) co_return why;
    signs.tell(Message(why));
    next_sign = Clock::now() + std::max(signs.interval, milliseconds(1));
  }
}

ModelLease ModelFleet::Peek(std::string_view name) {
  MutexLock lock(&mutex_);
  Member* const member = FindMember(name);
  if (member == nullptr) return nullptr;
  return member->state == State::kLoaded ? Lend(member, /*counts=*/false) : nullptr;
}

ModelLease ModelFleet::Keep(std::string_view name) {
  MutexLock lock(&mutex_);
  Member* const member = FindMember(name);
  if (member == nullptr || member->state != State::kLoaded) return nullptr;
  ++member->keepers;
  ModelLease lease = Lend(member, /*counts=*/false);
  LoadedModel* const loaded = lease.get();
  return {loaded,
          [this, kept = member->shared_from_this(), lease = std::move(lease)](LoadedModel*) {
            MutexLock end(&mutex_);
            --kept->keepers;
          }};
}

std::vector<NamedLease> ModelFleet::PeekAll() {
  MutexLock lock(&mutex_);
  std::vector<NamedLease> loaded;
  for (const auto& member : members_) {
    if (member->state != State::kLoaded) continue;
    loaded.push_back({member->model->name, Lend(member.get(), /*counts=*/false)});
  }
  return loaded;
}

// --- what an operator asks ---------------------------------------------------------------

Status ModelFleet::Load(std::string_view name) {
  MutexLock lock(&mutex_);
  Member* const member = FindNamed(name);
  if (member == nullptr) return UnknownName(name);
  if (!member->model->problem.empty()) {
    return FailedPrecondition("the model cannot be loaded: ", member->problem);
  }
  if (member->state == State::kLoaded) return FailedPrecondition("the model is already loaded");
  member->is_asked = true;
  if (member->state == State::kUnloaded) AskToLoad(member);
  return OkStatus();
}

Status ModelFleet::Unload(std::string_view name) {
  MutexLock lock(&mutex_);
  Member* const member = FindNamed(name);
  if (member == nullptr) return UnknownName(name);
  if (member->model->pinned) return FailedPrecondition("the model is pinned, and stays loaded");
  member->is_asked = false;
  if (member->state == State::kUnloaded) return FailedPrecondition("the model is not loaded");
  if (member->state == State::kLoaded) SetState(member, State::kUnloading);
  member->yields = false;
  changed_.NotifyAll();
  return OkStatus();
}

// --- which models there are --------------------------------------------------------------

void ModelFleet::AddMember(FleetModel model) {
  auto& member = members_.emplace_back(std::make_shared<Member>());
  member->problem = model.problem;
  member->directory = DefaultModelId(model.name);
  member->model = std::make_shared<const FleetModel>(std::move(model));
}

Status ModelFleet::CheckNames(const FleetModel& model) const {
  for (const std::string& name : model.AllNames()) {
    if (FindMember(name) == nullptr) continue;
    return absl::AlreadyExistsError(
        StrCat("a model called ", Printable(name, 200), " is served already"));
  }
  const std::string directory = DefaultModelId(model.name);
  for (const auto& member : members_) {
    if (member->is_gone || member->directory != directory) continue;
    return absl::AlreadyExistsError(StrCat("the name ", Printable(model.name, 200),
                                           " differs too little from ",
                                           Printable(member->model->name, 200)));
  }
  return OkStatus();
}

Status ModelFleet::MayAdd(std::string_view name) const {
  MutexLock lock(&mutex_);
  return CheckNames({.name = std::string(name)});
}

Status ModelFleet::Add(FleetModel model) {
  MutexLock lock(&mutex_);
  WEFT_RETURN_IF_ERROR(CheckNames(model));
  AddMember(std::move(model));
  return OkStatus();
}

// Wakes the requests that wait for it, which then find that it is gone.
void ModelFleet::RemoveMember(Member* member) {
  member->is_gone = true;
  member->is_asked = member->yields = false;
  if (member->state == State::kLoaded) SetState(member, State::kUnloading);
  ServeWaiting(member);
  Note({.model = member->model->name, .what = Happening::kRemoved});
  changed_.NotifyAll();
}

Status ModelFleet::Remove(std::string_view name, std::function<void()> then) {
  MutexLock lock(&mutex_);
  Member* const member = FindNamed(name);
  if (member == nullptr) return UnknownName(name);
  if (member->model->pinned) return FailedPrecondition("the model is pinned, and stays");
  member->when_gone = std::move(then);
  RemoveMember(member);
  return OkStatus();
}

Status ModelFleet::Replace(std::vector<FleetModel> models) {
  MutexLock lock(&mutex_);
  for (const auto& member : members_) {
    if (member->is_gone || member->model->is_added) continue;
    const auto same = std::ranges::find_if(models, [&](const FleetModel& model) {
      return model.name == member->model->name && model.source == member->model->source;
    });
    if (same != models.end()) {
      models.erase(same);
    } else {
      RemoveMember(member.get());
    }
  }
  Status first;
  for (FleetModel& model : models) {
    if (const Status status = CheckNames(model); status.ok()) {
      const bool is_eager = model.pinned && model.problem.empty();
      AddMember(std::move(model));
      if (!is_eager) continue;
      members_.back()->is_asked = true;
      AskToLoad(members_.back().get());
    } else if (first.ok()) {
      first = status;
    }
  }
  return first;
}

// --- what is told --------------------------------------------------------------------------

ModelFleet::Info ModelFleet::InfoOf(const Member& member) const {
  Info info{.model = member.model,
            .state = member.state,
            .problem = member.problem,
            .loaded_share = member.share,
            .memory_bytes = member.bytes,
            .requests = member.leases - member.keepers,
            .waiting = static_cast<int>(member.waiting.size()),
            .loads = member.loads,
            .failed_loads = member.failed_loads,
            .load_time = member.load_time};
  const milliseconds limit = IdleLimit(member);
  if (member.state == State::kLoaded && limit >= milliseconds(0)) {
    const auto left = std::max(member.used_at + limit - Clock::now(), Clock::duration::zero());
    info.expires_s = WallClockMicros() / 1'000'000 +
                     std::chrono::duration_cast<std::chrono::seconds>(left).count();
  }
  return info;
}

std::vector<ModelFleet::Info> ModelFleet::List() const {
  MutexLock lock(&mutex_);
  std::vector<Info> list;
  for (const auto& member : members_) {
    if (!member->is_gone) list.push_back(InfoOf(*member));
  }
  return list;
}

StatusOr<ModelFleet::Info> ModelFleet::Find(std::string_view name) const {
  MutexLock lock(&mutex_);
  const Member* const member = FindMember(name);
  if (member == nullptr) return UnknownName(name);
  return InfoOf(*member);
}

StatusOr<ModelFleet::Info> ModelFleet::FindExactly(std::string_view name) const {
  MutexLock lock(&mutex_);
  const Member* const member = FindNamed(name);
  if (member == nullptr) return UnknownName(name);
  return InfoOf(*member);
}

std::vector<ModelFleet::Event> ModelFleet::EventsSince(int64_t number) const {
  MutexLock lock(&mutex_);
  std::vector<Event> events;
  std::ranges::copy_if(events_, std::back_inserter(events),
                       [number](const Event& event) { return event.number > number; });
  return events;
}

std::shared_ptr<void> ModelFleet::WatchEvents(std::function<void()> wake) {
  MutexLock lock(&mutex_);
  const auto place = watchers_.insert(watchers_.end(), std::move(wake));
  return {nullptr, [this, place](void*) {
            MutexLock end(&mutex_);
            watchers_.erase(place);
          }};
}

bool ModelFleet::started() const {
  MutexLock lock(&mutex_);
  return started_;
}

void ModelFleet::Note(const Member& member) {
  Note({.model = member.model->name,
        .state = member.state,
        .loaded_share = member.share,
        .problem = member.problem});
}

void ModelFleet::NoteDownload(Event event) {
  MutexLock lock(&mutex_);
  Note(std::move(event));
}

void ModelFleet::Note(Event event) {
  event.number = ++last_event_;
  events_.push_back(std::move(event));
  if (events_.size() > kMaxEvents) events_.pop_front();
  for (const auto& wake : watchers_) wake();
}

void ModelFleet::SetState(Member* member, State state) {
  member->state = state;
  Note(*member);
}

void ModelFleet::Tell(const std::string& text) const {
  if (options_.on_notice) options_.on_notice(text);
}

// --- the end -------------------------------------------------------------------------------

Status ModelFleet::ParkAll(milliseconds grace) {
  std::vector<std::shared_ptr<LoadedModel>> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& member : members_) {
      if (member->loaded != nullptr) all.push_back(member->loaded);
    }
  }
  std::vector<Status> outcomes(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = all[i]->Park(grace); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) WEFT_RETURN_IF_ERROR(outcome);
  return OkStatus();
}

// Calls `when_gone` for removed models that the thread had not erased when it ended.
void ModelFleet::TellGone() {
  std::vector<std::function<void()>> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& member : members_) {
      if (member->is_gone) all.push_back(std::exchange(member->when_gone, nullptr));
    }
  }
  for (const auto& then : all) {
    if (then) then();
  }
}

Status ModelFleet::Drain(milliseconds grace) {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    changed_.NotifyAll();
    for (const auto& member : members_) ServeWaiting(member.get());
  }
  const Status status = ParkAll(grace);
  {
    // A model that is being loaded: that cannot be interrupted.
    MutexLock lock(&mutex_);
    while (is_working_) changed_.Wait(&mutex_);
  }
  const Status rest = ParkAll(grace);
  TellGone();
  return status.ok() ? rest : status;
}

}  // namespace weft::serve
