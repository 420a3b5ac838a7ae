#include "engine/storage/state_keeper.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace weft {
namespace {

// Time limit of one Pump between two steps, which it may exceed by one block: this long, or a
// thirtieth of the time since the last one. On a busy machine steps are long, and a crash should
// not find more unwritten.
constexpr int64_t kPumpMicros = 2000, kMaxPumpMicros = 20'000;
constexpr int64_t kPumpShare = 30;
// Waiting prompts hold memory; beyond this many the oldest are dropped.
constexpr size_t kMaxJobs = 64;
// After a failed write, until it is tried again.
constexpr int64_t kRetryMicros = 10 * int64_t{1'000'000};

// What follows the last colon: the system's own words, without the names before them.
std::string ReasonOf(const Status& status) {
  const std::string message(Message(status));
  const size_t at = message.rfind(": ");
  return at == message.npos ? "its state directory takes no more" : message.substr(at + 2);
}

}  // namespace

// --- tokens -----------------------------------------------------------------------------

void StateKeeper::WriteTokens(Session* session, History tokens,
                              std::function<void(const Status&)> done, bool is_new) {
  SessionSnapshot snapshot;
  if (!tokens.empty()) {
    snapshot.adapters = session->saved_adapters();
    snapshot.invoked_at = session->invoked_at;
  }
  snapshot.tokens = std::move(tokens);
  snapshot.state_tokens = std::min<int64_t>(session->computed(), std::ssize(snapshot.tokens));
  snapshot.used_us = WallClockMicros() - (NowMicros() - session->last_used_us);
  ++session->keep.n_under_way_;
  session->keep.is_due_again_ = false;
  ++token_writes_;
  const auto written = [this, id = session->id, done = std::move(done)](const Status& status) {
    --token_writes_;
    if (Session* const self = sessions_->Find(id)) --self->keep.n_under_way_;
    done(status);
  };
  if (is_new) {
    store_->CreateShared(session->domain, session->name, std::move(snapshot), written);
  } else {
    store_->Save(session->domain, session->name, std::move(snapshot), written);
  }
}

void StateKeeper::KeepSession(Session* session, std::function<void()> then) {
  KeepState(session, session->computed());
  if (session->keep.n_under_way_ > 0 && !then) {
    session->keep.is_due_again_ = true;
    return;
  }
  session->keep.is_due_again_ = false;
  // A session without any tokens need not be found again.
  if (session->is_kept() || (session->tokens.empty() && !session->has_file())) {
    if (then) then();
    return;
  }
  if (session->is_saved()) session->saved_tokens = session->n_tokens();
  WriteTokens(session, session->tokens,
              [this, id = session->id, version = session->changes,
               then = std::move(then)](const Status& status) {
                FinishTokens(id, version, status);
                if (then) then();
              });
}

void StateKeeper::FinishTokens(SessionId id, uint64_t version, const Status& status) {
  Session* const session = sessions_->Find(id);
  if (session == nullptr) return;
  if (status.ok()) session->SetKept(version);
  NoteSave(session, status);
  const bool idle = session->stage == SessionStage::kReady;
  if (std::exchange(session->keep.is_due_again_, false) && idle && status.ok())
    KeepSession(session);
}

void StateKeeper::NoteSave(Session* session, const Status& status) {
  if (status.ok()) {
    retry_us_ = 0;
    if (unsaved_.erase(session->id.value) == 0) return;
    session->unsaved.clear();
    session->note.clear();
    touched_(session);
    return;
  }
  ++failed_saves_;
  retry_us_ = NowMicros() + kRetryMicros;
  save_problem_ = ReasonOf(status);
  session->unsaved = save_problem_;
  session->note = StrCat("its current state is not on disk: ", Message(status));
  touched_(session);
  if (!unsaved_.insert(session->id.value).second || !notice_) return;
  notice_(StrCat("session \"", Printable(session->name),
                 "\" could not be saved; a restart would lose its last turn: ", Message(status)));
}

// One at a time, in turn: the problem may concern only one of them.
void StateKeeper::RetryUnsaved() {
  if (unsaved_.empty() || token_writes_ > 0 || NowMicros() < retry_us_) return;
  retry_us_ = NowMicros() + kRetryMicros;
  for (size_t i = 0; i < unsaved_.size(); ++i) {
    auto next = unsaved_.upper_bound(retried_);
    if (next == unsaved_.end()) next = unsaved_.begin();
    retried_ = *next;
    Session* const session = sessions_->Find(SessionId{retried_});
    const bool is_idle = session != nullptr && session->stage == SessionStage::kReady &&
                         !session->has_turn && !session->is_at_work();
    if (!is_idle || session->name.empty()) continue;
    if (session->is_kept()) return NoteSave(session, OkStatus());
    return KeepSession(session);
  }
}

void StateKeeper::FillStats(EngineStats* stats) {
  std::erase_if(unsaved_, [this](uint64_t id) {
    const Session* const session = sessions_->Find(SessionId{id});
    return session == nullptr || session->name.empty();
  });
  if (unsaved_.empty()) save_problem_.clear();
  stats->sessions_unsaved = std::ssize(unsaved_);
  stats->failed_saves = failed_saves_;
  stats->save_problem = save_problem_;
}

bool StateKeeper::IsKept(const Session& session) const {
  if (!session.is_kept() || session.keep.n_under_way_ > 0) return false;
  if (session.computed() == 0) return true;
  return disk_ != nullptr && disk_->Match(session.DomainOf(session.computed()),
                                          session.tokens.before_rows(), session.computed())
                                     .n_tokens >= session.computed();
}

// --- state ------------------------------------------------------------------------------

StateKeeper::Job* StateKeeper::JobOf(SessionId owner) {
  const auto found = job_of_.find(owner.value);
  return found == job_of_.end() ? nullptr : &jobs_.at(found->second);
}

StateKeeper::Job* StateKeeper::NewJob(SessionId owner) {
  if (jobs_.size() >= kMaxJobs) {
    if (const auto prompt = FirstJob(/*named=*/false); prompt != jobs_.end()) {
      EndJob(&prompt->second);
    }
  }
  const uint64_t number = ++next_job_;
  job_of_[owner.value] = number;
  Job* const job = &jobs_[number];
  job->number = number;
  job->owner = owner;
  return job;
}

void StateKeeper::EndJob(Job* job) {
  LetGo(job);
  for (auto& then : job->waiting) store_->AfterBlocks(std::move(then));
  job_of_.erase(job->owner.value);
  jobs_.erase(job->number);
}

// Creates a session that shares the state of the first tokens, so that nothing evicts it, to be
// written from the beginning. Blocks written earlier are recognised and cost nothing.
void StateKeeper::Hold(const Session& session, int64_t n_tokens, Job* job) {
  LetGo(job);
  job->next_entry = 0;
  job->parent = disk_->Root(session.DomainOf(n_tokens));
  job->slots.reset();
  auto holder = sessions_->CreateHolder(session.domain);
  if (!holder.ok()) return;
  (*holder)->SetAdapters(session.adapters, session.invoked_at);
  (*holder)->tokens = session.tokens.First(n_tokens);
  memory_->PlanAs(session, *holder);
  memory_->Share(session, n_tokens, *holder);
  memory_->CountAsKeeper(**holder, 1);
  job->n_tokens = (*holder)->computed();
  job->holder = (*holder)->id;
}

void StateKeeper::LetGo(Job* job) {
  if (Session* const holder = sessions_->Find(job->holder)) {
    memory_->CountAsKeeper(*holder, -1);
    memory_->Drop(holder);
    sessions_->Remove(holder);
  }
  job->holder = {};
}

void StateKeeper::KeepState(Session* session, int64_t n_tokens) {
  n_tokens =
      std::min<int64_t>({n_tokens, session->computed(), std::ssize(session->tokens.before_rows())});
  if (disk_ == nullptr || n_tokens == 0) return;
  Job* job = JobOf(session->id);
  if (job == nullptr) job = NewJob(session->id);
  job->named = !session->name.empty();
  job->domain = session->DomainOf(n_tokens);
  Hold(*session, n_tokens, job);
}

void StateKeeper::Forget(Session* session) {
  // Its last slot stays: a crash may still bring back the state that is being discarded.
  (void)ExchangeKeptSlot(session, std::nullopt);
  if (Job* const job = JobOf(session->id)) EndJob(job);
}

void StateKeeper::WhenStateIsWritten(SessionId owner, std::function<void()> then) {
  Job* const job = JobOf(owner);
  if (job == nullptr || stopped_waiting_) return store_->AfterBlocks(std::move(then));
  job->waiting.push_back(std::move(then));
}

void StateKeeper::StopWaiting() {
  stopped_waiting_ = true;
  for (auto& [number, job] : jobs_) {
    for (auto& then : std::exchange(job.waiting, {})) store_->AfterBlocks(std::move(then));
  }
}

bool StateKeeper::ReleaseMemory() {
  bool any = false;
  for (auto& [number, job] : jobs_) {
    any = any || job.holder.value != 0;
    LetGo(&job);
  }
  return any;
}

// Null if nothing of it can be written any more.
Session* StateKeeper::HolderOf(Job* job) {
  if (job->holder.value == 0) {
    const Session* const owner = sessions_->Find(job->owner);
    if (!job->named || owner == nullptr || owner->has_turn) return nullptr;
    const int64_t n_tokens =
        std::min<int64_t>(owner->computed(), std::ssize(owner->tokens.before_rows()));
    if (n_tokens == 0) return nullptr;
    Hold(*owner, n_tokens, job);
  }
  Session* const holder = sessions_->Find(job->holder);
  return holder != nullptr && holder->computed() >= job->n_tokens ? holder : nullptr;
}

std::map<uint64_t, StateKeeper::Job>::iterator StateKeeper::FirstJob(bool named) {
  return std::ranges::find_if(jobs_,
                              [named](const auto& job) { return job.second.named == named; });
}

bool StateKeeper::Pump() {
  RetryUnsaved();
  const int64_t now_us = NowMicros();
  const int64_t since_us = now_us - std::exchange(pumped_us_, now_us);
  if (jobs_.empty()) return false;
  bool any = false;
  const int64_t end_us = now_us + std::clamp(since_us / kPumpShare, kPumpMicros, kMaxPumpMicros);
  while (!jobs_.empty() && NowMicros() < end_us) {
    // Sessions were promised to be kept; prompts may be computed again.
    auto next = FirstJob(/*named=*/true);
    if (next == jobs_.end()) next = jobs_.begin();
    Job* const job = &next->second;
    const Progress progress = Advance(job);
    if (progress == Progress::kLater) break;
    any = true;
    if (progress == Progress::kNo) EndJob(job);
  }
  if (any) memory_->ReturnFreed();
  return any;
}

std::optional<int64_t> StateKeeper::NextWake() const {
  if (jobs_.empty()) return std::nullopt;
  const int64_t next_us = disk_->next_write_us();
  // An answer wakes the engine. Without one nothing would, on a machine so busy that the moment
  // has passed since Pump looked.
  if (next_us <= NowMicros() && disk_->awaits_answers()) return std::nullopt;
  return next_us;
}

StateKeeper::Progress StateKeeper::Advance(Job* job) {
  const Session* const holder = HolderOf(job);
  if (holder == nullptr || job->n_tokens == 0) return Progress::kNo;
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
  if ((info.groups & needed) != needed) return Progress::kNo;
  const Fingerprint key = info.key;
  if (disk_->Has(key, info.groups) ||
      (n < page && disk_->Covers(info.parent, tokens, info.groups))) {
    if (job->named) disk_->UseForSession(key);
  } else {
    const auto read = [&] { return memory_->ReadBlock(holder, job->next_entry, info.groups); };
    const Progress progress = disk_->Keep(info, job->domain, read);
    if (progress != Progress::kYes) return progress;
  }
  if (n == page) job->parent = key;
  ++job->next_entry;
  return Progress::kYes;
}

// Recurrent state: after all tokens, and at the earlier checkpoints.
StateKeeper::Progress StateKeeper::KeepSlot(Job* job, const Session& holder) {
  if (!holder.state.slot()) return Progress::kNo;
  if (!job->slots.has_value()) {
    job->slots = memory_->CheckpointsToKeep(holder);
    const bool has_end = !job->slots->empty() && job->slots->back().n_tokens == job->n_tokens;
    if (job->named && !has_end) job->slots->push_back({job->n_tokens, holder.state.slot().id()});
  }
  if (job->slots->empty()) return Progress::kNo;
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
  // A checkpoint may have been evicted since it was chosen.
  SlotId slot = n_tokens == job->n_tokens ? holder.state.slot().id() : kNoSlot;
  for (const auto& checkpoint : memory_->CheckpointsToKeep(holder)) {
    if (slot == kNoSlot && checkpoint.n_tokens == n_tokens) slot = checkpoint.slot;
  }
  if (slot != kNoSlot && !disk_->Has(info.key, 0)) {
    const auto read = [&] { return memory_->ReadSlot(slot); };
    const Progress progress = disk_->Keep(info, job->domain, read);
    if (progress != Progress::kYes) return progress;
  }
  Session* const owner = sessions_->Find(job->owner);
  if (job->named && n_tokens == job->n_tokens && owner != nullptr) {
    SetKeptSlot(owner, info.key);
  }
  job->slots->pop_back();
  return Progress::kYes;
}

// Returns the previous one if no session has it as its last any more.
std::optional<Fingerprint> StateKeeper::ExchangeKeptSlot(Session* session,
                                                         const std::optional<Fingerprint>& key) {
  const auto former = std::exchange(session->keep.slot_, key);
  if (key.has_value()) ++kept_slots_[{key->low, key->high}];
  if (!former.has_value()) return std::nullopt;
  const auto found = kept_slots_.find({former->low, former->high});
  if (--found->second > 0) return std::nullopt;
  kept_slots_.erase(found);
  return former;
}

// Nobody will resume from the previous one, unless a fork is still there.
void StateKeeper::SetKeptSlot(Session* session, const Fingerprint& key) {
  const std::optional<Fingerprint> former = ExchangeKeptSlot(session, key);
  if (!former.has_value()) return;
  // While the disk has only the previous tokens, a crash brings those back.
  const bool has_tokens =
      session->keep.n_under_way_ == 0 && session->keep.version_ == session->changes;
  if (has_tokens) disk_->RemoveUnused(*former);
}

}  // namespace weft
