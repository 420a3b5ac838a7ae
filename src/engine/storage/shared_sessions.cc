#include "engine/storage/shared_sessions.h"

#include <functional>

#include "base/clock.h"
#include "engine/state/session_trouble.h"

namespace weft {

Worker& SharedSessions::WorkerOf(const Key& key) {
  const size_t hash = std::hash<std::string>()(StrCat(key.first, "/", key.second));
  return workers_[hash % workers_.size()];
}

void SharedSessions::NoteHeld(const Key& key, int64_t until_us) {
  if (until_us == 0) {
    held_.erase(key);
  } else {
    held_[key] = until_us;
  }
}

void SharedSessions::NoteAnswer(const Status& status) {
  const std::string why = WhyUnavailable(status);
  n_errors_ += why.empty() ? 0 : 1;
  const bool answers = why.empty(), did = problem_.empty();
  problem_ = why;
  if (answers == did || !notice_) return;
  notice_(answers
              ? "the shared store answers again"
              : StrCat("the shared store does not answer, so that turns of named sessions fail: ",
                       why));
}

bool SharedSessions::IsHeld(const std::string& domain, const std::string& name) const {
  const auto found = held_.find({domain, name});
  return found != held_.end() && NowMicros() < found->second - LeaseMicros() / 3;
}

void SharedSessions::Run(const Key& key, bool keeps, std::function<Status()> call, Done done) {
  WorkerOf(key).Post([this, key, keeps, call = std::move(call), done = std::move(done)] {
    // The claim began no later than this.
    const int64_t until_us = NowMicros() + LeaseMicros();
    const Status status = call();
    const bool is_held = keeps && status.ok() && heads_.HasClaim(key.first, key.second);
    post_back_([this, key, status, done, held = is_held ? until_us : 0] {
      NoteHeld(key, held);
      NoteAnswer(status);
      done(status);
    });
  });
}

void SharedSessions::Take(const std::string& domain, const std::string& name,
                          std::function<void(StatusOr<Taken>)> take) {
  const Key key(domain, name);
  WorkerOf(key).Post([this, key, take = std::move(take)] {
    const int64_t until_us = NowMicros() + LeaseMicros();
    StatusOr<Taken> taken = heads_.Take(key.first, key.second);
    const bool is_held = taken.ok() && heads_.HasClaim(key.first, key.second);
    post_back_([this, key, status = taken.status(), held = is_held ? until_us : 0] {
      NoteHeld(key, held);
      NoteAnswer(status);
    });
    take(std::move(taken));
  });
}

void SharedSessions::Peek(const std::string& domain, const std::string& name,
                          std::function<void(StatusOr<SessionHeads::Seen>)> peek) {
  WorkerOf({domain, name}).Post([this, domain, name, peek = std::move(peek)] {
    StatusOr<SessionHeads::Seen> seen = heads_.Peek(domain, name);
    post_back_([this, status = seen.status()] { NoteAnswer(status); });
    peek(std::move(seen));
  });
}

void SharedSessions::Commit(const std::string& domain, const std::string& name, bool is_new,
                            Make make, Done done) {
  const auto commit = [this, domain, name, is_new, make = std::move(make)]() -> Status {
    WEFT_ASSIGN_OR_RETURN(SessionHeads::Contents contents, make());
    return is_new ? heads_.Create(domain, name, std::move(contents))
                  : heads_.Commit(domain, name, std::move(contents));
  };
  Run({domain, name}, /*keeps=*/true, commit, std::move(done));
}

void SharedSessions::Confirm(const std::string& domain, const std::string& name, Done done) {
  Run(
      {domain, name}, /*keeps=*/true, [=, this] { return heads_.Confirm(domain, name); },
      std::move(done));
}

void SharedSessions::Renew(const std::string& domain, const std::string& name, Done done) {
  const Key key(domain, name);
  const auto held = held_.find(key);
  const bool is_fresh = held != held_.end() && NowMicros() < held->second - LeaseMicros() / 2;
  if (is_fresh || !renewing_.insert(key).second) return;
  WorkerOf(key).Post([this, key, done = std::move(done)] {
    const int64_t until_us = NowMicros() + LeaseMicros();
    const Status status = heads_.Renew(key.first, key.second);
    post_back_([this, key, status, done, until_us] {
      renewing_.erase(key);
      // Without an answer, the store still has the claim before.
      if (status.ok()) NoteHeld(key, until_us);
      if (TroubleOf(status) == SessionTrouble::kMoved) NoteHeld(key, 0);
      NoteAnswer(status);
      done(status);
    });
  });
}

void SharedSessions::Forget(const std::string& domain, const std::string& name) {
  const Key key(domain, name);
  held_.erase(key);
  WorkerOf(key).Post([this, key] { heads_.Forget(key.first, key.second); });
}

void SharedSessions::Release(const std::string& domain, const std::string& name, Done done) {
  Run(
      {domain, name}, /*keeps=*/false, [=, this] { return heads_.Release(domain, name); },
      std::move(done));
}

void SharedSessions::RemoveOwn(const std::string& domain, const std::string& name, Done done) {
  Run(
      {domain, name}, /*keeps=*/false, [=, this] { return heads_.RemoveOwn(domain, name); },
      std::move(done));
}

void SharedSessions::Remove(const std::string& domain, const std::string& name, Done done) {
  Run(
      {domain, name}, /*keeps=*/false, [=, this] { return heads_.Remove(domain, name); },
      std::move(done));
}

}  // namespace weft
