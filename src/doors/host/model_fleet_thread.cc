// The fleet's thread: makes room, loads and unloads.
#include <algorithm>
#include <new>
#include <utility>

#include "base/strings.h"
#include "doors/host/model_fleet.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;

// The loaded share is told in steps of this.
constexpr double kShareStep = 0.05;

std::string Bytes(int64_t bytes) {
  return HumanBytes(static_cast<uint64_t>(std::max<int64_t>(bytes, 0)));
}

}  // namespace

void ModelFleet::Start() {
  MutexLock lock(&mutex_);
  for (const auto& member : members_) {
    if (!member->model->problem.empty() || !(member->model->pinned || member->model->eager))
      continue;
    member->is_asked = true;
    AskToLoad(member.get());
  }
  is_working_ = true;
  thread_ = std::thread([this] { Work(); });
}

void ModelFleet::Work() {
  MutexLock lock(&mutex_);
  while (!draining_) {
    if (UnloadOne() || TrimToBudget() || ForgetGone()) continue;
    if (!to_load_.empty()) {
      LoadNext();
      continue;
    }
    started_ = true;
    changed_.WaitUntil(&mutex_, NextExpiry());
  }
  is_working_ = false;
  changed_.NotifyAll();
}

void ModelFleet::AskToLoad(Member* member) {
  member->problem.clear();
  SetState(member, State::kWaiting);
  to_load_.push_back(member);
  changed_.NotifyAll();
}

bool ModelFleet::IsWanted(const Member& member) const {
  return !draining_ && !member.is_gone && (member.is_asked || !member.waiting.empty());
}

void ModelFleet::ServeWaiting(Member* member) {
  for (Waiter& waiter : member->waiting) {
    if (member->state == State::kLoaded && waiter.lease == nullptr) {
      waiter.lease = LendFor(member, waiter.wish);
    }
    waiter.wake();
  }
}

void ModelFleet::LoadNext() {
  Member* const member = to_load_.front();
  to_load_.pop_front();
  const Status room = MakeRoom(member);
  if (room.code() == StatusCode::kCancelled) {
    SetState(member, State::kUnloaded);
  } else if (room.ok()) {
    member->share = member->noted_share = 0;
    member->bytes = member->model->needs_bytes;
    member->load_begun = Clock::now();
    SetState(member, State::kLoading);
    mutex_.Unlock();
    Loaded loaded = RunLoad(member);
    mutex_.Lock();
    EndLoad(member, std::move(loaded));
  } else {
    EndLoad(member, room);
  }
  ServeWaiting(member);
}

// Without the mutex.
ModelFleet::Loaded ModelFleet::RunLoad(Member* member) {
  const auto told = [this, member](double share) {
    MutexLock lock(&mutex_);
    member->share = share;
    if (share < member->noted_share + kShareStep) return;
    member->noted_share = share;
    Note(*member);
  };
  try {
    return member->model->load(told);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("there is not enough memory");
  }
}

void ModelFleet::EndLoad(Member* member, Loaded loaded) {
  member->is_asked = false;
  member->keep_alive.reset();
  member->used_at = member->failed_at = Clock::now();
  if (loaded.ok()) {
    ++member->loads;
    member->load_time += member->used_at - member->load_begun;
    member->bytes = (*loaded)->memory_bytes();
    member->loaded = *std::move(loaded);
    return SetState(member, member->is_gone ? State::kUnloading : State::kLoaded);
  }
  ++member->failed_loads;
  member->bytes = 0;
  member->problem = Message(loaded.status());
  SetState(member, State::kUnloaded);
  Tell(StrCat("the model ", Printable(member->model->name, 200),
              " could not be loaded: ", Printable(member->problem, 1000)));
}

int64_t ModelFleet::UsedBytes() const {
  int64_t bytes = 0;
  for (const auto& member : members_) bytes += member->bytes;
  return bytes;
}

// Marks models that are to go until the rest leaves room, those used least recently first, and all
// idle ones before busy ones.
Status ModelFleet::ChooseToYield(const Member& member) {
  const int64_t needs = member.model->needs_bytes;
  int64_t stays = UsedBytes();
  std::vector<Member*> candidates;
  for (const auto& other : members_) {
    if (other->state == State::kUnloading) stays -= other->bytes;
    if (other->state == State::kLoaded && !other->model->pinned) candidates.push_back(other.get());
  }
  std::ranges::sort(candidates, [](const Member* a, const Member* b) {
    return std::pair(a->leases > 0, a->used_at) < std::pair(b->leases > 0, b->used_at);
  });
  for (Member* const other : candidates) {
    if (stays + needs <= options_.memory_bytes) break;
    stays -= other->bytes;
    other->yields = true;
    SetState(other, State::kUnloading);
  }
  if (stays + needs <= options_.memory_bytes) return OkStatus();
  KeepYielding();
  return ResourceExhausted("it needs ", Bytes(needs), " of memory; of the ",
                           Bytes(options_.memory_bytes), " that --memory leaves for models, ",
                           Bytes(options_.memory_bytes - stays), " can be free",
                           stays > 0 ? " next to the models that stay" : "");
}

// What was to go for a model that nobody wants any more stays.
void ModelFleet::KeepYielding() {
  for (const auto& other : members_) {
    if (!std::exchange(other->yields, false)) continue;
    SetState(other.get(), State::kLoaded);
    ServeWaiting(other.get());
  }
}

// Waits until requests have left the models that are to go. CANCELLED once nobody wants it.
Status ModelFleet::MakeRoom(Member* member) {
  // A model that was only to be loaded if there is room.
  const bool may_displace = member->model->pinned || !member->waiting.empty() || started_;
  while (IsWanted(*member)) {
    if (IsGoneUnloading(*member)) {
      if (!UnloadOne()) changed_.Wait(&mutex_);
      continue;
    }
    if (UsedBytes() + member->model->needs_bytes <= options_.memory_bytes) return OkStatus();
    if (!may_displace) break;
    WEFT_RETURN_IF_ERROR(ChooseToYield(*member));
    if (!UnloadOne()) changed_.Wait(&mutex_);
  }
  KeepYielding();
  member->is_asked = false;
  return absl::CancelledError("");
}

// One model that is to go, or that nobody has asked for too long. False if there is none.
bool ModelFleet::UnloadOne() {
  for (const auto& member : members_) {
    if (member->leases > 0) continue;
    const milliseconds limit = IdleLimit(*member);
    const bool has_expired = member->state == State::kLoaded && limit >= milliseconds(0) &&
                             member->waiting.empty() && Clock::now() >= member->used_at + limit;
    if (!has_expired && member->state != State::kUnloading) continue;
    FinishUnload(member.get());
    return true;
  }
  return false;
}

// Whether a removed model still uses the directory of the member's sessions.
bool ModelFleet::IsGoneUnloading(const Member& member) const {
  return std::ranges::any_of(members_, [&member](const auto& other) {
    return other->is_gone && other->directory == member.directory &&
           other->state != State::kUnloaded;
  });
}

// Erases one removed model that is unloaded. False if there is none.
bool ModelFleet::ForgetGone() {
  const auto gone = std::ranges::find_if(members_, [](const auto& member) {
    return member->is_gone && member->state == State::kUnloaded;
  });
  if (gone == members_.end()) return false;
  const std::shared_ptr<Member> member = *gone;
  members_.erase(gone);
  if (!member->when_gone) return true;
  mutex_.Unlock();
  member->when_gone();
  mutex_.Lock();
  return true;
}

// A model may take more than was estimated.
bool ModelFleet::TrimToBudget() {
  if (UsedBytes() <= options_.memory_bytes) return false;
  Member* oldest = nullptr;
  for (const auto& member : members_) {
    const bool may_go = member->state == State::kLoaded && member->leases == 0 &&
                        member->waiting.empty() && !member->model->pinned;
    if (may_go && (oldest == nullptr || member->used_at < oldest->used_at)) oldest = member.get();
  }
  if (oldest == nullptr) return false;
  FinishUnload(oldest);
  return true;
}

void ModelFleet::FinishUnload(Member* member) {
  if (member->state != State::kUnloading) SetState(member, State::kUnloading);
  member->yields = false;
  mutex_.Unlock();
  const Status status = member->loaded->Park(options_.park_grace);
  if (!status.ok()) {
    Tell(StrCat("not everything of ", Printable(member->model->name, 200),
                " was saved when it was unloaded: ", Message(status)));
  }
  mutex_.Lock();
  std::shared_ptr<LoadedModel> loaded = std::exchange(member->loaded, nullptr);
  mutex_.Unlock();
  loaded.reset();
  mutex_.Lock();
  member->bytes = 0;
  member->keep_alive.reset();
  SetState(member, State::kUnloaded);
  ServeWaiting(member);
}

milliseconds ModelFleet::IdleLimit(const Member& member) const {
  if (member.model->pinned) return milliseconds(-1);
  if (member.keep_alive) return *member.keep_alive;
  return member.model->idle_unload.value_or(options_.idle_unload);
}

ModelFleet::Clock::time_point ModelFleet::NextExpiry() const {
  auto next = Clock::now() + std::chrono::hours(1);
  for (const auto& member : members_) {
    const milliseconds limit = IdleLimit(*member);
    if (member->state != State::kLoaded || member->leases > 0 || limit < milliseconds(0)) continue;
    next = std::min(next, member->used_at + limit);
  }
  return next;
}

}  // namespace weft::serve
