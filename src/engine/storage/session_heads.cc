#include "engine/storage/session_heads.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/new_id.h"
#include "engine/state/session_trouble.h"

namespace weft {
namespace {

// Older ones have long come, or never will.
constexpr size_t kMaxUnsettled = 16;
constexpr int64_t kHeadRestMicros = 2 * int64_t{1'000'000};
constexpr std::chrono::milliseconds kFirstWait{50}, kLongestWait{1000};

}  // namespace

// --- claims -----------------------------------------------------------------------------

std::optional<SessionHeads::Claim> SessionHeads::ClaimOn(const Key& key) const {
  MutexLock lock(&mutex_);
  const auto found = claims_.find(key);
  return found != claims_.end() ? std::optional(found->second) : std::nullopt;
}

void SessionHeads::SetClaim(const Key& key, std::optional<Claim> claim) {
  MutexLock lock(&mutex_);
  if (claim.has_value()) {
    claims_[key] = *std::move(claim);
  } else {
    claims_.erase(key);
  }
}

int64_t SessionHeads::Until() const {
  return WallClockMicros() +
         std::chrono::duration_cast<std::chrono::microseconds>(options_.lease).count();
}

// --- reading and writing ----------------------------------------------------------------

bool SessionHeads::WaitBefore(int attempt, int64_t end_us) const {
  const int64_t now_us = NowMicros();
  if (is_abandoned_) return false;
  if (attempt == 0) return true;
  if (now_us >= end_us) return false;
  const std::chrono::milliseconds wait = kFirstWait * (1 << std::min(attempt, 5));
  std::this_thread::sleep_for(std::min({wait, kLongestWait, patience()}));
  return !is_abandoned_;
}

Status SessionHeads::Failed(const Status& why) {
  if (why.code() == StatusCode::kDeadlineExceeded) rests_until_us_ = NowMicros() + kHeadRestMicros;
  return StoreUnavailable(why);
}

SessionHeads::Claim SessionHeads::ClaimOf(const SharedHead& head,
                                          ObjectStore::Condition condition) {
  return {.condition = std::move(condition), .epoch = head.epoch, .commit = head.commit};
}

bool SessionHeads::MayComeLate(const Key& key) const {
  MutexLock lock(&mutex_);
  return late_.contains(key);
}

void SessionHeads::Forget(const std::string& domain, const std::string& name) {
  MutexLock lock(&mutex_);
  claims_.erase({domain, name});
}

StatusOr<SessionHeads::Found> SessionHeads::Look(const Key& key, bool always) {
  const std::string name = HeadName(key.first, key.second);
  const int64_t end_us = NowMicros() + patience().count() * 1000;
  Status why = Unavailable("it has not answered a moment ago, or this server is stopping");
  for (int attempt = 0; (always || !rests()) && WaitBefore(attempt, end_us); ++attempt) {
    auto object = options_.objects->Get(name);
    if (object.status().code() == StatusCode::kNotFound) {
      return Found{.condition = ObjectStore::Condition::Absent()};
    }
    if (object.ok()) {
      auto head = ReadSharedHead(object->body);
      const Status damage = head.status();
      return Found{.head = damage.ok() ? *std::move(head) : SharedHead(),
                   .damage = damage,
                   .condition = ObjectStore::Condition::Unchanged(std::move(object->tag))};
    }
    why = object.status();
    if (!MayPass(why)) break;
  }
  return Failed(why);
}

// A write that failed may have happened, or may happen yet; only what the head says counts.
StatusOr<std::string> SessionHeads::Settle(const std::string& name, const SharedHead& head,
                                           Claim former) {
  const std::string bytes = BytesOf(head);
  const int64_t end_us = NowMicros() + patience().count() * 1000;
  Status why = Unavailable("it has not answered a moment ago, or this server is stopping");
  bool may_be_written = false;  // by an attempt whose answer was lost
  const auto lost = [&] { return may_be_written ? StoreUnavailable(why) : SessionMoved(); };
  for (int attempt = 0; WaitBefore(attempt, end_us); ++attempt) {
    auto written = options_.objects->Put(name, bytes, former.condition);
    if (written.ok()) return written;
    const bool is_refused = written.status().code() == StatusCode::kFailedPrecondition;
    if (!is_refused) why = written.status();
    may_be_written = may_be_written || !is_refused;
    if (!is_refused && !MayPass(why)) break;
    const auto there = options_.objects->Get(name);
    if (there.ok()) {
      const auto found = ReadSharedHead(there->body);
      if (!found.ok()) return Failed(found.status());
      if (found->commit == head.commit) return there->tag;
      if (found->parent == head.commit) return std::string();
      if (!former.Knows(found->commit)) return lost();
      former.condition = ObjectStore::Condition::Unchanged(there->tag);
    } else if (there.status().code() == StatusCode::kNotFound) {
      if (former.condition.kind != ObjectStore::Condition::kAbsent) return lost();
    } else {
      why = there.status();
    }
  }
  return Failed(why);
}

Status SessionHeads::Write(const Key& key, const Claim& former, SharedHead head) {
  head.commit = FingerprintOf(NewId(""));
  head.parent = former.commit;
  SetClaim(key, std::nullopt);
  const auto tag = Settle(HeadName(key.first, key.second), head, former);
  {
    MutexLock lock(&mutex_);
    if (TroubleOf(tag.status()) == SessionTrouble::kUnavailable) late_.insert(key);
    if (tag.ok()) late_.erase(key);
  }
  if (!tag.ok()) return tag.status();
  const bool is_overtaken = tag->empty();
  if (head.is_deleted || head.owner.empty() || is_overtaken) return OkStatus();
  SetClaim(key, ClaimOf(head, ObjectStore::Condition::Unchanged(*tag)));
  return OkStatus();
}

Status SessionHeads::CheckOwner(const SharedHead& head) const {
  const int64_t left_us = head.until_us - WallClockMicros();
  if (head.is_deleted || head.owner.empty() || head.owner == options_.owner || left_us <= 0) {
    return OkStatus();
  }
  // A server whose clock is ahead cannot keep its clients waiting for longer than it claims.
  const int64_t wait_us = std::min(left_us, options_.lease.count() * 1000);
  return SessionElsewhere(head.owner, (wait_us + 999'999) / 1'000'000);
}

// --- sessions ---------------------------------------------------------------------------

StatusOr<SessionHeads::Taken> SessionHeads::Take(const std::string& domain,
                                                 const std::string& name) {
  const Key key(domain, name);
  SetClaim(key, std::nullopt);
  WEFT_ASSIGN_OR_RETURN(Found found, Look(key));
  Claim claim{.condition = std::move(found.condition)};
  const bool is_there = found.head.has_value() && !found.head->is_deleted;
  if (!is_there && MayComeLate(key)) {
    // A write of this server that may still come must find another version.
    if (found.head.has_value()) claim = ClaimOf(*found.head, std::move(claim.condition));
    WEFT_RETURN_IF_ERROR(Write(key, claim, {.is_deleted = true, .epoch = claim.epoch + 1}));
    WEFT_ASSIGN_OR_RETURN(found, Look(key));
    claim.condition = std::move(found.condition);
  }
  if (!found.head.has_value()) {
    SetClaim(key, std::move(claim));
    return Taken{};
  }
  SharedHead& head = *found.head;
  WEFT_RETURN_IF_ERROR(CheckOwner(head));
  claim = ClaimOf(head, std::move(claim.condition));
  if (head.is_deleted || !found.damage.ok()) {
    SetClaim(key, std::move(claim));
    if (!found.damage.ok()) return found.damage;
    return Taken{{}, /*was_deleted=*/true};
  }
  Taken taken{{.session = head.session, .state_tokens = head.state_tokens}};
  // Also where this server had it: a write of its own that is still under way fails from now on.
  head.owner = options_.owner;
  head.until_us = Until();
  ++head.epoch;
  WEFT_RETURN_IF_ERROR(Write(key, claim, std::move(head)));
  return taken;
}

Status SessionHeads::Create(const std::string& domain, const std::string& name, Contents contents) {
  const Key key(domain, name);
  WEFT_ASSIGN_OR_RETURN(Found found, Look(key));
  const Status taken = AlreadyExists("the store has a session ", Printable(name), " already");
  if (found.head.has_value() && !found.head->is_deleted) return taken;
  Claim claim{.condition = std::move(found.condition)};
  if (found.head.has_value()) claim = ClaimOf(*found.head, std::move(claim.condition));
  SetClaim(key, std::move(claim));
  const Status created = Commit(domain, name, std::move(contents));
  return TroubleOf(created) == SessionTrouble::kMoved ? taken : created;
}

Status SessionHeads::Commit(const std::string& domain, const std::string& name, Contents contents) {
  const Key key(domain, name);
  const auto claim = ClaimOn(key);
  if (!claim.has_value()) return SessionMoved();
  SharedHead head;
  head.epoch = claim->epoch;
  if (claim->condition.kind == ObjectStore::Condition::kAbsent) head.epoch = 1;
  head.owner = options_.owner;
  head.until_us = Until();
  head.session = std::move(contents.session);
  head.state_tokens = contents.state_tokens;
  return Write(key, *claim, std::move(head));
}

// One attempt: others wait for the thread, and the commit settles what is left open.
Status SessionHeads::Renew(const std::string& domain, const std::string& name) {
  const Key key(domain, name);
  auto claim = ClaimOn(key);
  if (!claim.has_value()) return SessionMoved();
  if (is_abandoned_ || rests()) return Failed(Unavailable("it has not answered a moment ago"));
  const std::string object = HeadName(domain, name);
  const auto there = options_.objects->Get(object);
  if (there.status().code() == StatusCode::kNotFound) return OkStatus();  // not committed yet
  if (!there.ok()) return Failed(there.status());
  auto head = ReadSharedHead(there->body);
  if (!head.ok() || !claim->Knows(head->commit)) {
    SetClaim(key, std::nullopt);
    return SessionMoved();
  }
  if (head->is_deleted) return OkStatus();
  head->parent = std::exchange(head->commit, FingerprintOf(NewId("")));
  head->owner = options_.owner;
  head->until_us = Until();
  claim->condition = ObjectStore::Condition::Unchanged(there->tag);
  claim->unsettled.push_back(head->commit);
  const auto tag = options_.objects->Put(object, BytesOf(*head), claim->condition);
  if (tag.ok()) {
    *claim = ClaimOf(*head, ObjectStore::Condition::Unchanged(*tag));
  } else if (claim->unsettled.size() > kMaxUnsettled) {
    claim->unsettled.erase(claim->unsettled.begin());
  }
  SetClaim(key, std::move(claim));
  // What came between is settled by the commit.
  if (tag.status().code() == StatusCode::kFailedPrecondition) return OkStatus();
  return tag.ok() ? OkStatus() : Failed(tag.status());
}

Status SessionHeads::Confirm(const std::string& domain, const std::string& name) {
  const Key key(domain, name);
  const auto claim = ClaimOn(key);
  if (!claim.has_value()) return SessionMoved();
  WEFT_ASSIGN_OR_RETURN(Found found, Look(key));
  SetClaim(key, std::nullopt);
  if (!found.head.has_value()) {
    if (claim->condition.kind != ObjectStore::Condition::kAbsent) return SessionMoved();
    SetClaim(key, claim);
    return OkStatus();
  }
  SharedHead& head = *found.head;
  if (!claim->Knows(head.commit)) {
    WEFT_RETURN_IF_ERROR(CheckOwner(head));
    return SessionMoved();
  }
  Claim there = ClaimOf(head, std::move(found.condition));
  there.unsettled = claim->unsettled;
  if (head.is_deleted) {
    SetClaim(key, there);
    return OkStatus();
  }
  head.owner = options_.owner;
  head.until_us = Until();
  return Write(key, there, std::move(head));
}

Status SessionHeads::Release(const std::string& domain, const std::string& name) {
  const Key key(domain, name);
  const auto claim = ClaimOn(key);
  if (!claim.has_value() || claim->condition.kind == ObjectStore::Condition::kAbsent) {
    SetClaim(key, std::nullopt);
    return OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(Found found, Look(key, /*always=*/true));
  SetClaim(key, std::nullopt);
  if (!found.head.has_value() || !claim->Knows(found.head->commit)) return SessionMoved();
  // What cannot be read has no owner, and stays as it is.
  if (found.head->is_deleted || !found.damage.ok()) return OkStatus();
  found.head->owner.clear();
  found.head->until_us = 0;
  return Write(key, *claim, *std::move(found.head));
}

Status SessionHeads::RemoveOwn(const std::string& domain, const std::string& name) {
  return ClaimOn({domain, name}).has_value() ? Remove(domain, name) : OkStatus();
}

StatusOr<SessionHeads::Seen> SessionHeads::Peek(const std::string& domain,
                                                const std::string& name) {
  const Key key(domain, name);
  if (MayComeLate(key) && !HasClaim(domain, name)) {
    const Status taken = Take(domain, name).status();
    SetClaim(key, std::nullopt);
    // Another server has changed it since: the write finds another version.
    if (!taken.ok() && TroubleOf(taken) != SessionTrouble::kElsewhere) return taken;
  }
  WEFT_ASSIGN_OR_RETURN(Found found, Look(key));
  WEFT_RETURN_IF_ERROR(found.damage);
  if (!found.head.has_value() || found.head->is_deleted) {
    return NotFound("there is no session ", Printable(name));
  }
  return Seen{.owner = OwnerOf(CheckOwner(*found.head)), .session = std::move(found.head->session)};
}

Status SessionHeads::Remove(const std::string& domain, const std::string& name) {
  const Key key(domain, name);
  std::optional<Claim> claim = ClaimOn(key);
  if (!claim.has_value()) {
    WEFT_ASSIGN_OR_RETURN(Found found, Look(key, /*always=*/true));
    const SharedHead there = found.head.value_or(SharedHead{.is_deleted = true});
    if (there.is_deleted && !MayComeLate(key)) return OkStatus();
    WEFT_RETURN_IF_ERROR(CheckOwner(there));
    claim = ClaimOf(there, std::move(found.condition));
  }
  // A first write that may still come must find that there was a deletion.
  if (claim->condition.kind == ObjectStore::Condition::kAbsent && !MayComeLate(key)) {
    SetClaim(key, std::nullopt);
    return OkStatus();
  }
  SharedHead head;
  head.is_deleted = true;
  head.epoch = claim->epoch + 1;
  return Write(key, *claim, std::move(head));
}

}  // namespace weft
