#include "engine/state_keeper.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace weft {
namespace {

// Between two steps, and one block more.
constexpr int64_t kPumpMicros = 2000;
// Prompts that wait hold memory; of more the oldest are given up.
constexpr size_t kMostJobs = 64;

}  // namespace

// --- tokens -----------------------------------------------------------------------------

void StateKeeper::WriteTokens(Session* session, std::vector<TokenId> tokens,
                              std::function<void(const Status&)> done) {
  SessionSnapshot snapshot;
  snapshot.tokens = std::move(tokens);
  snapshot.used_us = WallClockMicros() - (NowMicros() - session->last_used_us);
  ++session->keeps_under_way;
  ++token_writes_;
  store_->Save(session->domain, session->name, std::move(snapshot),
               [this, id = session->id, done = std::move(done)](const Status& status) {
                 --token_writes_;
                 if (Session* const self = sessions_->Find(id)) --self->keeps_under_way;
                 done(status);
               });
}

void StateKeeper::KeepSession(Session* session) {
  KeepState(session, session->computed);
  if (session->keeps_under_way > 0) {
    session->keep_again = true;
    return;
  }
  session->keep_again = false;
  if (session->kept && session->kept_version == session->changes) return;
  // One that never said anything need not be found again.
  if (session->tokens.empty() && !session->has_file()) return;
  if (session->saved) session->saved_tokens = session->n_tokens();
  WriteTokens(session, session->tokens,
              [this, id = session->id, version = session->changes](const Status& status) {
                FinishTokens(id, version, status);
              });
}

void StateKeeper::FinishTokens(SessionId id, uint64_t version, const Status& status) {
  Session* const session = sessions_->Find(id);
  if (session == nullptr) return;
  if (status.ok()) {
    session->kept = true;
    session->kept_version = version;
  } else {
    session->note = StrCat("it is not on disk as it is now: ", Message(status));
    touched_(session);
  }
  const bool idle = session->turn == nullptr && session->state == SessionState::kReady;
  if (std::exchange(session->keep_again, false) && idle && status.ok()) KeepSession(session);
}

bool StateKeeper::IsKept(const Session& session) const {
  if (!session.kept || session.kept_version != session.changes || session.keeps_under_way > 0) {
    return false;
  }
  if (session.computed == 0) return true;
  return disk_ != nullptr &&
         disk_->Match(session.domain, session.tokens, session.computed).n_tokens >=
             session.computed;
}

// --- state ------------------------------------------------------------------------------

// A session that shares the state of the first tokens, so that nobody takes it away.
SessionId StateKeeper::Hold(const Session& session, int64_t n_tokens, int64_t* held_tokens) {
  auto holder = sessions_->CreateForTurn(session.domain);
  if (!holder.ok()) return {};
  (*holder)->holds_for_disk = true;
  (*holder)->tokens.assign(session.tokens.begin(), session.tokens.begin() + n_tokens);
  memory_->Share(session, n_tokens, *holder);
  *held_tokens = (*holder)->computed;
  return (*holder)->id;
}

void StateKeeper::LetGo(Job* job) {
  if (Session* const holder = sessions_->Find(job->holder)) {
    memory_->Drop(holder);
    sessions_->Remove(holder);
  }
  job->holder = {};
}

void StateKeeper::KeepState(Session* session, int64_t n_tokens) {
  n_tokens = std::min(n_tokens, session->computed);
  if (disk_ == nullptr || n_tokens == 0) return;
  auto job = std::find_if(jobs_.begin(), jobs_.end(),
                          [&](const Job& other) { return other.owner == session->id; });
  if (job == jobs_.end()) {
    if (jobs_.size() >= kMostJobs) {
      const auto oldest =
          std::find_if(jobs_.begin(), jobs_.end(), [](const Job& other) { return !other.named; });
      if (oldest != jobs_.end()) {
        LetGo(&*oldest);
        jobs_.erase(oldest);
      }
    }
    job = jobs_.emplace(jobs_.end());
    job->owner = session->id;
  }
  // What was written of it before is found to be there, so beginning anew costs nothing.
  LetGo(&*job);
  job->named = !session->name.empty();
  job->domain = session->domain;
  job->next_entry = 0;
  job->parent = disk_->Root(session->domain);
  job->slots.reset();
  job->holder = Hold(*session, n_tokens, &job->n_tokens);
}

void StateKeeper::Forget(Session* session) {
  // Its last slot stays: a crash may still bring back what is being forgotten.
  if (const auto former = std::exchange(session->kept_slot, std::nullopt); former.has_value()) {
    const auto found = kept_slots_.find({former->low, former->high});
    if (--found->second == 0) kept_slots_.erase(found);
  }
  const auto job = std::find_if(jobs_.begin(), jobs_.end(),
                                [&](const Job& other) { return other.owner == session->id; });
  if (job == jobs_.end()) return;
  LetGo(&*job);
  jobs_.erase(job);
}

bool StateKeeper::ReleaseMemory() {
  bool any = false;
  for (Job& job : jobs_) {
    any = any || sessions_->Find(job.holder) != nullptr;
    LetGo(&job);
  }
  return any;
}

// Null: there is nothing of it that could be written any more.
Session* StateKeeper::HolderOf(Job* job) {
  if (job->holder.value == 0) {
    const Session* const owner = sessions_->Find(job->owner);
    if (!job->named || owner == nullptr || owner->turn != nullptr || owner->computed == 0) {
      return nullptr;
    }
    job->holder = Hold(*owner, owner->computed, &job->n_tokens);
    job->next_entry = 0;
    job->parent = disk_->Root(job->domain);
    job->slots.reset();
  }
  Session* const holder = sessions_->Find(job->holder);
  return holder != nullptr && holder->computed >= job->n_tokens ? holder : nullptr;
}

bool StateKeeper::Pump() {
  if (jobs_.empty()) return false;
  bool any = false;
  const int64_t end_us = NowMicros() + kPumpMicros;
  while (!jobs_.empty() && NowMicros() < end_us) {
    Job& job = jobs_.front();
    const Progress progress = Advance(&job);
    if (progress == Progress::kLater) break;
    any = true;
    if (progress == Progress::kDone) {
      LetGo(&job);
      jobs_.pop_front();
    }
  }
  if (any) memory_->ReturnFreed();
  return any;
}

std::optional<int64_t> StateKeeper::NextWake() const {
  if (jobs_.empty()) return std::nullopt;
  return disk_->next_write_us();
}

StateKeeper::Progress StateKeeper::Advance(Job* job) {
  const Session* const holder = HolderOf(job);
  if (holder == nullptr || job->n_tokens == 0) return Progress::kDone;
  const int64_t page = memory_->page_tokens();
  if (job->next_entry * page < job->n_tokens) return KeepPage(job, *holder);
  return KeepSlot(job, *holder);
}

StateKeeper::Progress StateKeeper::KeepPage(Job* job, const Session& holder) {
  const int64_t page = memory_->page_tokens();
  const uint64_t needed = memory_->groups_always_needed();
  BlockInfo info;
  info.parent = job->parent;
  info.first_token = job->next_entry * page;
  const int64_t n = std::min(page, job->n_tokens - info.first_token);
  const auto tokens = std::span(holder.tokens)
                          .subspan(static_cast<size_t>(info.first_token), static_cast<size_t>(n));
  info.tokens.assign(tokens.begin(), tokens.end());
  info.key = PageBlockKey(info.parent, tokens);
  info.groups = memory_->GroupsAt(holder, job->next_entry);
  info.session = job->named;
  if ((info.groups & needed) != needed) return Progress::kDone;
  const Fingerprint key = info.key;
  if (disk_->Has(key, info.groups) ||
      (n < page && disk_->Covers(info.parent, tokens, info.groups))) {
    if (job->named) disk_->UseForSession(key);
  } else {
    const auto read = [&] { return memory_->ReadBlock(holder, job->next_entry, info.groups); };
    const Progress progress = KeepBlock(*job, info, read);
    if (progress != Progress::kCopied) return progress;
  }
  if (n == page) job->parent = key;
  ++job->next_entry;
  return Progress::kCopied;
}

// Recurrent state: after all of the tokens, and the checkpoints before.
StateKeeper::Progress StateKeeper::KeepSlot(Job* job, const Session& holder) {
  if (!holder.slot) return Progress::kDone;
  if (!job->slots.has_value()) {
    job->slots = memory_->CheckpointsToKeep(holder);
    const bool has_end = !job->slots->empty() && job->slots->back().n_tokens == job->n_tokens;
    if (job->named && !has_end) job->slots->push_back({job->n_tokens, holder.slot.id()});
  }
  if (job->slots->empty()) return Progress::kDone;
  const int64_t n_tokens = job->slots->back().n_tokens;
  const int64_t page = memory_->page_tokens();
  BlockInfo info;
  info.kind = BlockInfo::Kind::kSlot;
  info.parent = disk_->Root(job->domain);
  const std::span<const TokenId> tokens(holder.tokens);
  for (; info.first_token + page <= n_tokens; info.first_token += page) {
    info.parent = PageBlockKey(info.parent, tokens.subspan(static_cast<size_t>(info.first_token),
                                                           static_cast<size_t>(page)));
  }
  const auto tail = tokens.subspan(static_cast<size_t>(info.first_token),
                                   static_cast<size_t>(n_tokens - info.first_token));
  info.tokens.assign(tail.begin(), tail.end());
  info.key = SlotBlockKey(info.parent, tail);
  info.session = job->named;
  // A checkpoint may have gone since it was chosen.
  SlotId slot = n_tokens == job->n_tokens ? holder.slot.id() : kNoSlot;
  for (const auto& checkpoint : memory_->CheckpointsToKeep(holder)) {
    if (slot == kNoSlot && checkpoint.n_tokens == n_tokens) slot = checkpoint.slot;
  }
  if (slot != kNoSlot && !disk_->Has(info.key, 0)) {
    const Progress progress = KeepBlock(*job, info, [&] { return memory_->ReadSlot(slot); });
    if (progress == Progress::kLater) return progress;
    if (progress == Progress::kDone) return progress;
  }
  Session* const owner = sessions_->Find(job->owner);
  if (job->named && n_tokens == job->n_tokens && owner != nullptr) {
    SetKeptSlot(owner, info.key);
  }
  job->slots->pop_back();
  return Progress::kCopied;
}

// The one before is where nobody will start again, unless a fork is there still.
void StateKeeper::SetKeptSlot(Session* session, const std::optional<Fingerprint>& key) {
  const auto former = std::exchange(session->kept_slot, key);
  if (key.has_value()) ++kept_slots_[{key->low, key->high}];
  if (!former.has_value()) return;
  const auto found = kept_slots_.find({former->low, former->high});
  if (--found->second > 0) return;
  kept_slots_.erase(found);
  // As long as the disk has the former tokens alone, a crash brings these back.
  const bool has_tokens =
      session->keeps_under_way == 0 && session->kept_version == session->changes;
  if (has_tokens) disk_->RemoveUnused(*former);
}

StateKeeper::Progress StateKeeper::KeepBlock(
    const Job& job, BlockInfo info, const std::function<StatusOr<std::vector<std::byte>>()>& read) {
  const Fingerprint key = info.key;
  switch (disk_->Ask(std::move(info), job.domain)) {
    case DiskTier::Answer::kLater:
      return Progress::kLater;
    case DiskTier::Answer::kNo:
      return Progress::kDone;
    case DiskTier::Answer::kYes:
      break;
  }
  auto payload = read();
  if (!payload.ok()) {
    disk_->Withdraw(key);
    return Progress::kDone;
  }
  disk_->Write(key, job.domain, *std::move(payload));
  return Progress::kCopied;
}

}  // namespace weft
