// Sessions and their files: park, save, restore, rename, close.
//
// While a file is read or written the session says so (FileWork), and turns and calls wait
// (WhenFree). Only the store's worker touches the state directory; its answers are handled here.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/kv_type.h"

namespace weft {
namespace {

std::string DescribeLayout(const Backend& backend, std::string_view kv_type,
                           const StateLayout& layout) {
  return StrCat(backend.name(), " kv ", kv_type, " page ", layout.page_tokens, " tokens, bytes ",
                StrJoin(layout.page_bytes, ","), ", slot ", layout.slot_bytes);
}

// Limits on copies of sessions being written; one copy is always allowed.
constexpr int64_t kLeastSaveBytes = int64_t{1} << 20;
constexpr int64_t kMostSaveBytes = int64_t{64} << 20;

// How long ago the session in a file was used. A damaged file has no valid time, and the time in an
// intact one is clamped, since files are not trusted.
int64_t IdleMicros(const SavedSession& file) {
  const int64_t now_us = WallClockMicros();
  return file.health.ok() ? now_us - std::clamp<int64_t>(file.updated_us, 0, now_us) : 0;
}

}  // namespace

// Every saved session exists from the start, parked.
Status EngineCore::OpenStore() {
  if (options_.state_dir.empty()) return OkStatus();
  const std::string kv_type(KvInfo(options_.kv_type).name);
  const std::string layout = DescribeLayout(model_->backend(), kv_type, memory_->layout());
  SessionStore::Identity identity{.model = model_->fingerprint(),
                                  .layout = layout,
                                  .kv_type = kv_type,
                                  .sizes = memory_->layout()};
  WEFT_ASSIGN_OR_RETURN(store_,
                        SessionStore::Open(options_.state_dir, std::move(identity), post_back_));
  std::vector<std::string> strangers;
  WEFT_ASSIGN_OR_RETURN(const std::vector<SavedSession> saved, store_->ListAll(&strangers));
  for (const SavedSession& file : saved) {
    auto session = sessions_.CreateSaved(file.domain, file.name);
    if (!session.ok()) {
      strangers.push_back(StrCat(Printable(file.name), ": ", Message(session.status())));
      continue;
    }
    (*session)->saved_tokens = file.n_tokens;
    (*session)->note = std::string(Message(file.health));
    (*session)->last_used_us = NowMicros() - IdleMicros(file);
    Touch(*session);
  }
  for (const std::string& stranger : strangers) {
    if (options_.on_notice) {
      options_.on_notice(StrCat("ignored in the state directory: ", stranger));
    }
  }
  return OpenDisk(layout);
}

Status EngineCore::CheckSavable(const Session& session) const {
  if (store_ == nullptr) {
    return FailedPrecondition("there is no state directory; start with --state-dir DIR");
  }
  if (session.name.empty()) {
    return FailedPrecondition("only a session with a name can be saved; rename it first");
  }
  WEFT_RETURN_IF_ERROR(RefuseBusy(session));
  if (session.is_at_work()) return FailedPrecondition("this session is being saved");
  if (session.stage == SessionStage::kPoisoned) {
    return FailedPrecondition("a poisoned session is not saved; reset it first");
  }
  return OkStatus();
}

StatusOr<SessionSnapshot> EngineCore::SnapshotOf(const Session& session) {
  SessionSnapshot snapshot;
  snapshot.tokens = session.tokens;
  snapshot.used_us = WallClockMicros() - (NowMicros() - session.last_used_us);
  WEFT_ASSIGN_OR_RETURN(snapshot.state, memory_->ReadState(session));
  return snapshot;
}

void EngineCore::WhenFree(SessionId id, bool with_state,
                          const ReplyWith<StatusOr<Session*>>& then) {
  if (store_closed_) return then(Unavailable("the engine has shut down"));
  const auto found = sessions_.Get(id);
  if (!found.ok()) return then(found.status());
  Session* const session = *found;
  if (session->is_at_work()) {
    session->after_file_work.push_back([=, this] { WhenFree(id, with_state, then); });
    return;
  }
  if (with_state && session->is_parked()) {
    StartRestore(session, [=, this](const Status& status) {
      status.ok() ? WhenFree(id, with_state, then) : then(status);
    });
    return;
  }
  then(session);
}

void EngineCore::Park(SessionId id, const Reply& reply) {
  WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& session) {
    if (!session.ok()) return reply(session.status());
    if ((*session)->is_parked()) return reply(OkStatus());
    const Status status = CheckSavable(**session);
    if (!status.ok()) return reply(status);
    StartSave(*session, /*park=*/true, /*free_now=*/false, reply);
  });
}

void EngineCore::Save(SessionId id, const Reply& reply) {
  WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& session) {
    if (!session.ok()) return reply(session.status());
    const Status status = CheckSavable(**session);
    if (!status.ok()) return reply(status);
    if ((*session)->is_parked()) return reply(OkStatus());
    StartSave(*session, /*park=*/false, /*free_now=*/false, reply);
  });
}

bool EngineCore::SaveHasRoom(const Session& session) const {
  const int64_t most = std::clamp(memory_->budget_bytes() / 8, kLeastSaveBytes, kMostSaveBytes);
  return save_bytes_ == 0 || save_bytes_ + memory_->BytesOf(session) <= most;
}

void EngineCore::StartSave(Session* session, bool park, bool free_now, const Reply& reply) {
  BeginFileWork(session, FileWork::kSaving);
  saves_.push_back({session->id, park, free_now, reply});
  PumpSaves();
}

void EngineCore::PumpSaves() {
  while (!saves_.empty()) {
    Session* const session = sessions_.Find(saves_.front().id);
    if (session != nullptr && !saves_abandoned_ && !SaveHasRoom(*session)) return;
    const WaitingSave save = std::move(saves_.front());
    saves_.pop_front();
    if (session != nullptr && !saves_abandoned_) {
      SaveNow(session, save.park, save.free_now, save.reply);
      continue;
    }
    EndFileWork(save.id);
    save.reply(DeadlineExceeded("the time for saving ran out"));
  }
}

void EngineCore::SaveNow(Session* session, bool park, bool free_now, const Reply& reply) {
  auto snapshot = SnapshotOf(*session);
  if (!snapshot.ok()) {
    EndFileWork(session->id);
    return reply(snapshot.status());
  }
  if (disk_ != nullptr && snapshot->state.n_tokens > 0) {
    const Status fits = disk_->MakeRoomForFile(SessionStore::BytesOfFile(*snapshot));
    if (!fits.ok() && !free_now) {
      EndFileWork(session->id);
      return reply(fits);
    }
    // Nobody asked for the state, only that the tokens are safe.
    if (!fits.ok()) snapshot->state = {};
  }
  const int64_t bytes = memory_->BytesOf(*session);
  if (free_now) {
    memory_->Drop(session);
    memory_->ReturnFreed();
  }
  Touch(session);
  save_bytes_ += bytes;
  const int64_t n_tokens = session->n_tokens();
  store_->Save(session->domain, session->name, *std::move(snapshot),
               [this, id = session->id, version = session->changes, park, n_tokens, bytes,
                reply](const Status& status) {
                 EndFileWork(id);
                 save_bytes_ -= bytes;
                 Session* const self = sessions_.Find(id);
                 if (self != nullptr && status.ok()) {
                   self->SetKept(version);
                 }
                 FinishSave(id, park, n_tokens, status);
                 reply(status);
                 PumpSaves();
               });
}

void EngineCore::BeginFileWork(Session* session, FileWork work) {
  session->file_work.Become(work);
  at_work_.insert(session->id.value);
  Touch(session);
}

// Runs what waited for the file next, as if just posted.
void EngineCore::EndFileWork(SessionId id) {
  at_work_.erase(at_work_.find(id.value));
  Session* const session = sessions_.Find(id);
  if (session == nullptr) return;
  Touch(session);
  session->file_work.Become(FileWork::kNone);
  for (auto& waiting : session->after_file_work) post_back_(std::move(waiting));
  session->after_file_work.clear();
}

void EngineCore::FinishSave(SessionId id, bool park, int64_t n_tokens, const Status& status) {
  Session* const session = sessions_.Find(id);
  if (session == nullptr) return;
  if (!status.ok()) {
    session->note = StrCat("saving failed: ", Message(status));
  } else {
    session->on_disk.Become(OnDisk::kSaved);
    session->saved_tokens = n_tokens;
    ++stats_.parks;
    if (park) BecomeParked(session);
  }
  RestoreForTurn(session);  // a turn that arrived meanwhile needs what was just parked
}

// Restores a parked session if a turn of it waits, unless its file is in use: whoever uses it will
// call again. A failure ends the turn.
void EngineCore::RestoreForTurn(Session* session) {
  if (session->is_at_work()) return;
  if (session->stage == SessionStage::kAwaited) StartRestore(session, [](const Status&) {});
}

void EngineCore::BecomeParked(Session* session) {
  Touch(session);
  memory_->Drop(session);
  memory_->ReturnFreed();
  session->on_disk.Become(OnDisk::kSaved);
  session->saved_tokens = session->n_tokens();
  session->tokens = {};
  session->note.clear();
  const bool has_turn = session->stage == SessionStage::kQueued;
  session->stage.Become(has_turn ? SessionStage::kAwaited : SessionStage::kParked);
}

void EngineCore::Restore(SessionId id, const Reply& reply) {
  WhenFree(id, /*with_state=*/true,
           [=](const StatusOr<Session*>& session) { reply(session.status()); });
}

void EngineCore::StartRestore(Session* session, const Reply& reply) {
  const SessionId id = session->id;
  BeginFileWork(session, FileWork::kRestoring);
  store_->Load(session->domain, session->name, [this, id, reply](StatusOr<SessionSnapshot> loaded) {
    EndFileWork(id);
    FinishRestore(id, std::move(loaded), reply);
  });
}

void EngineCore::FinishRestore(SessionId id, StatusOr<SessionSnapshot> loaded, const Reply& reply) {
  Session* const session = sessions_.Find(id);
  if (session == nullptr) return reply(NotFound("the session was closed meanwhile"));
  if (loaded.ok()) {
    // The backend trusts its tokens; files are not trusted.
    const auto outside = [&](TokenId token) { return token < 0 || token >= model_->n_vocab(); };
    if (std::any_of(loaded->tokens.begin(), loaded->tokens.end(), outside)) {
      loaded = DataLoss("the session's file has tokens that are not in the model's vocabulary");
    }
  }
  if (!loaded.ok()) {
    session->note = std::string(Message(loaded.status()));
    if (session->turn != nullptr) {
      session->turn->End(FinishReason::kError, loaded.status());
      SweepTurns();
    }
    return reply(loaded.status());
  }
  session->tokens = std::move(loaded->tokens);
  session->note = std::move(loaded->note);
  const bool has_turn = session->stage == SessionStage::kAwaited;
  session->stage.Become(has_turn ? SessionStage::kQueued : SessionStage::kReady);
  session->last_used_us = NowMicros();
  session->SetKept(++session->changes);
  ++stats_.restores;
  while (loaded->state.n_tokens > 0) {
    const Status status = memory_->WriteState(session, loaded->state);
    if (status.ok()) break;
    if (status.code() == StatusCode::kResourceExhausted && GiveUpIdleState()) continue;
    // The tokens remain; the state is recomputed.
    session->note = StrCat("the saved state could not be used: ", Message(status));
    break;
  }
  session->from_disk += session->computed;
  Touch(session);
  // A turn looks for the rest itself.
  const auto done = [reply] { reply(OkStatus()); };
  if (session->turn != nullptr || !StartLoad(session, session->n_tokens(), done)) done();
}

bool EngineCore::StillKeeping() {
  if (keeper_ == nullptr) return false;
  PumpDisk();
  return keeper_->NextWake().has_value() || keeper_->writes_tokens();
}

void EngineCore::ParkAll() {
  if (store_ == nullptr) return;
  keeper_->ReleaseMemory();
  std::vector<SessionId> ids;
  sessions_.ForEach([&](Session* session) {
    if (session->stage != SessionStage::kReady || !CheckSavable(*session).ok()) return;
    // An empty session replaces its file, so that a reset session does not come back.
    if (session->tokens.empty() && !session->has_file()) return;
    if (!keeper_->IsKept(*session)) ids.push_back(session->id);
  });
  for (const SessionId id : ids) {
    Session* const session = sessions_.Find(id);
    if (session == nullptr || session->is_at_work()) continue;
    StartSave(session, /*park=*/true, /*free_now=*/true, [this, id](const Status& status) {
      const Session* const self = sessions_.Find(id);
      if (status.ok() || self == nullptr) return;
      // If the tokens are on disk, only the state is lost, and is recomputed.
      if (self->is_kept()) return;
      not_saved_.push_back(StrCat("\"", Printable(self->name), "\""));
      if (not_saved_because_.ok()) not_saved_because_ = status;
    });
  }
  if (disk_ != nullptr) disk_->WriteIndex();
}

void EngineCore::AbandonSaves() {
  if (std::exchange(saves_abandoned_, true) || store_ == nullptr) return;
  store_->Abandon();
  PumpSaves();
}

Status EngineCore::SaveOutcome() const {
  if (not_saved_.empty()) return OkStatus();
  const bool one = not_saved_.size() == 1;
  return Annotate(not_saved_because_, one ? "session " : "sessions ", StrJoin(not_saved_, ", "),
                  one ? " was" : " were", " not saved: ");
}

void EngineCore::Rename(SessionId id, const std::string& name, const Reply& reply) {
  WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& found) {
    if (!found.ok()) return reply(found.status());
    Session* const session = *found;
    const std::string old_name = session->name;
    if (session->is_saved() && name.empty()) {
      return reply(InvalidArgument("a saved session needs a name"));
    }
    const Status status = sessions_.Rename(session, name);
    Touch(session);
    if (!status.ok() || name == old_name) return reply(status);
    if (session->has_file()) return RenameFile(session, old_name, reply);
    if (session->turn == nullptr) KeepIfNamed(session);
    reply(status);
  });
}

void EngineCore::RenameFile(Session* session, const std::string& old_name, const Reply& reply) {
  const SessionId id = session->id;
  const std::string name = session->name;
  BeginFileWork(session, FileWork::kChanging);
  const auto finish = [=, this](const Status& status) {
    EndFileWork(id);
    Session* const self = sessions_.Find(id);
    // Tokens in flight may never have reached the disk.
    const bool had_none =
        status.code() == StatusCode::kNotFound && self != nullptr && !self->is_saved();
    const Status renamed = had_none ? OkStatus() : status;
    if (self != nullptr) {
      if (name.empty() || had_none) self->on_disk.Become(OnDisk::kNothing);
      // The old name is still free: names change on this thread only, and a new session of that
      // name would have found its file.
      if (!renamed.ok()) (void)sessions_.Rename(self, old_name);
      Touch(self);
      RestoreForTurn(self);
    }
    reply(renamed);
  };
  if (name.empty()) {
    keeper_->Forget(session);
    store_->Remove(session->domain, old_name, finish);
  } else {
    store_->Rename(session->domain, old_name, name, finish);
  }
}

void EngineCore::Close(SessionId id, bool forget, const Reply& reply) {
  WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& session) {
    session.ok() ? CloseNow(*session, forget, reply) : reply(session.status());
  });
}

int64_t EngineCore::CloseIdle(const std::optional<std::string>& domain, int64_t idle_us) {
  const std::vector<Session*> idle = idle_->UnusedSince(domain, NowMicros() - idle_us);
  for (Session* const session : idle) {
    CloseNow(session, /*forget=*/true, [](const Status&) {});
  }
  return static_cast<int64_t>(idle.size());
}

void EngineCore::CloseNow(Session* session, bool forget, const Reply& reply) {
  const SessionId id = session->id;
  if (session->turn != nullptr) {
    session->turn->End(FinishReason::kCancelled, OkStatus());
    if (session->turn->in_step()) AbandonLongStep();
    SweepTurns();
    session = sessions_.Find(id);
    if (session == nullptr) return reply(OkStatus());  // anonymous: destroyed with its turn
  }
  const bool saved = session->is_saved(), has_file = session->has_file();
  const int64_t saved_tokens = session->saved_tokens;
  const int64_t last_used_us = session->last_used_us;
  const std::string domain = session->domain, name = session->name;
  DestroySession(session);
  memory_->ReturnFreed();
  if (!has_file) return reply(OkStatus());
  const auto list_parked = [=, this](const std::string& note) -> Status {
    WEFT_ASSIGN_OR_RETURN(Session* const parked, sessions_.CreateSaved(domain, name));
    parked->saved_tokens = saved_tokens;
    parked->last_used_us = last_used_us;
    parked->note = note;
    Touch(parked);
    return OkStatus();
  };
  if (saved && !forget) return reply(list_parked(""));
  at_work_.insert(id.value);
  store_->Remove(domain, name, [=, this](const Status& status) {
    EndFileWork(id);
    // Tokens in flight may never have reached the disk.
    if (status.ok() || (!saved && status.code() == StatusCode::kNotFound)) {
      return reply(OkStatus());
    }
    // The file still exists and can be found; another session of that name will replace it.
    if (status.code() != StatusCode::kNotFound) {
      (void)list_parked(StrCat("it could not be removed: ", Message(status)));
    }
    reply(status);
  });
}

}  // namespace weft
