// Parks, saves and restores sessions. session_upkeep.cc keeps their files up to date.
#include "engine/storage/session_files.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace weft {
namespace {

std::string DescribeLayout(const std::string& backend, const std::string& kv_type,
                           const StateLayout& layout) {
  const std::string form = layout.form > 1 ? StrCat(", form ", layout.form) : "";
  return StrCat(backend, " kv ", kv_type, " page ", layout.page_tokens, " tokens, bytes ",
                StrJoin(layout.page_bytes, ","), ", slot ", layout.slot_bytes, form);
}

// Limits on copies of sessions being written; one copy is always allowed.
constexpr int64_t kMinSaveBytes = int64_t{1} << 20;
constexpr int64_t kMaxSaveBytes = int64_t{64} << 20;
// Strangers in the state directory that are told one by one.
constexpr size_t kMaxTold = 20;

// How long ago the session in a file was used. A damaged file has no valid time, and the time in an
// intact one is clamped, since files are not trusted.
int64_t IdleMicros(const SavedSession& file) {
  const int64_t now_us = WallClockMicros();
  return file.health.ok() ? now_us - std::clamp<int64_t>(file.updated_us, 0, now_us) : 0;
}

}  // namespace

SessionFiles::SessionFiles(const Parts& parts, Options options, PostBack post_back)
    : sessions_(parts.sessions),
      memory_(parts.memory),
      idle_(parts.idle),
      publisher_(parts.publisher),
      adapters_(parts.adapters),
      options_(std::move(options)),
      post_back_(std::move(post_back)),
      works_(sessions_, publisher_, post_back_) {}

Status SessionFiles::Open() {
  if (options_.path.empty()) return OkStatus();
  const std::string layout = DescribeLayout(options_.backend, options_.kv_type, memory_->layout());
  SessionStore::Identity identity{
      .model = options_.model,
      .layout = layout,
      .kv_type = options_.kv_type,
      .sizes = memory_->layout(),
      .row_values = options_.row_values,
      .max_row_bytes = std::min(options_.max_row_bytes, memory_->max_row_bytes())};
  WEFT_ASSIGN_OR_RETURN(store_,
                        SessionStore::Open(options_.path, std::move(identity), options_.shared,
                                           memory_->rows(), post_back_, options_.on_notice));
  std::vector<std::string> strangers;
  WEFT_ASSIGN_OR_RETURN(const std::vector<SavedSession> saved, store_->ListAll(&strangers));
  for (const SavedSession& file : saved) {
    auto session = sessions_->CreateSaved(file.domain, file.name);
    if (!session.ok()) {
      strangers.push_back(StrCat(Printable(file.name), ": ", Message(session.status())));
      continue;
    }
    (*session)->saved_tokens = file.n_tokens;
    (*session)->note = std::string(Message(file.health));
    (*session)->last_used_us = NowMicros() - IdleMicros(file);
    publisher_->Touch(*session);
  }
  for (size_t i = 0; i < std::min(strangers.size(), kMaxTold) && options_.on_notice; ++i) {
    options_.on_notice(StrCat("ignored in the state directory: ", strangers[i]));
  }
  if (strangers.size() > kMaxTold && options_.on_notice) {
    options_.on_notice(
        StrCat("ignored in the state directory: ", strangers.size() - kMaxTold, " more"));
  }
  return OpenBlocks(layout);
}

Status SessionFiles::OpenBlocks(const std::string& layout) {
  if (options_.disk_bytes >= 0 && memory_->keeps_prefixes()) {
    DiskTier::Options disk;
    disk.path = StrCat(store_->path(), "/blocks");
    disk.identity = StrCat(options_.model, " ", layout, " bits ", kBitsVersion);
    const std::string disk_identity = disk.identity;
    disk.layout = memory_->layout();
    for (const GroupShape& shape : memory_->shapes()) disk.windows.push_back(shape.window);
    disk.share_across_domains = options_.share_across_domains;
    disk.budget_bytes = options_.disk_bytes;
    disk.bytes_per_hour = options_.disk_bytes_per_hour;
    disk.file_bytes = store_->file_bytes();
    disk.notice = options_.on_notice;
    WEFT_ASSIGN_OR_RETURN(disk_, DiskTier::Open(std::move(disk), store_->worker(), post_back_));
    if (is_shared() && options_.shares_blocks) OpenSharedBlocks(disk_identity);
    store_->WatchFileBytes([disk = disk_.get()](int64_t bytes) { disk->SetFileBytes(bytes); });
    loader_ = std::make_unique<StateLoader>(memory_, sessions_, publisher_, &works_, disk_.get(),
                                            blocks_.get(), [this] { return GiveUpIdleState(); });
  }
  keeper_ = std::make_unique<StateKeeper>(
      memory_, sessions_, store_.get(), disk_.get(),
      [this](Session* session) { publisher_->Touch(session); }, options_.on_notice);
  return OkStatus();
}

void SessionFiles::OpenSharedBlocks(const std::string& identity) {
  const std::string all = StrCat(identity, options_.machine);
  blocks_ = std::make_unique<SharedBlocks>(options_.shared.objects, FingerprintOf(all).ToHex(),
                                           memory_->page_tokens(), disk_.get(), post_back_);
  disk_->WatchWritten([blocks = blocks_.get()](const Fingerprint& key) { blocks->Offer(key); });
}

void SessionFiles::WhenFree(SessionId id, bool with_state, bool is_asked,
                            const ReplyWith<StatusOr<Session*>>& then) {
  if (store_closed_) return then(Unavailable("the engine has shut down"));
  const auto found = sessions_->Get(id);
  if (!found.ok()) return then(found.status());
  Session* const session = *found;
  if (session->is_at_work()) {
    works_.After(session, [=, this] { WhenFree(id, with_state, /*is_asked=*/false, then); });
    return;
  }
  const auto again = [=, this](const Status& status) {
    status.ok() ? WhenFree(id, with_state, /*is_asked=*/true, then) : then(status);
  };
  if (session->is_parked() && (with_state || IsShared(*session))) {
    return StartRestore(session, again);
  }
  // Even if the answer took longer than the lease: the commit decides.
  const bool may_have_moved = IsShared(*session) && !session->has_turn && !is_asked &&
                              !store_->shared()->IsHeld(session->domain, session->name);
  if (may_have_moved) return Confirm(session, again);
  then(session);
}

// --- saving ---------------------------------------------------------------------------

Status SessionFiles::CheckSavable(const Session& session) const {
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

void SessionFiles::Park(SessionId id, const Reply& reply) {
  WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& session) {
    if (!session.ok()) return reply(session.status());
    if ((*session)->is_parked()) return reply(OkStatus());
    const Status status = CheckSavable(**session);
    if (!status.ok()) return reply(status);
    if (IsShared(**session)) return ParkShared(*session, /*park=*/true, reply);
    StartSave(*session, /*park=*/true, /*free_now=*/false, reply);
  });
}

void SessionFiles::ParkIdle(const ReplyWith<StatusOr<int64_t>>& reply) {
  struct Outcome {
    int64_t open = 0, parked = 0;
    Status status;
  };
  std::vector<SessionId> ids;
  sessions_->ForEach([&](Session* session) {
    // An empty session replaces its file, so that a reset session does not come back.
    const bool is_nothing = session->tokens.empty() && !session->has_file();
    const bool is_here = session->stage == SessionStage::kReady && !is_nothing;
    if (is_here && CheckSavable(*session).ok()) ids.push_back(session->id);
  });
  if (ids.empty()) return reply(int64_t{0});
  const auto outcome = std::make_shared<Outcome>();
  outcome->open = std::ssize(ids);
  for (const SessionId id : ids) {
    Park(id, [outcome, reply](const Status& status) {
      outcome->status.Update(status);
      outcome->parked += status.ok() ? 1 : 0;
      if (--outcome->open > 0) return;
      reply(outcome->status.ok() ? StatusOr<int64_t>(outcome->parked) : outcome->status);
    });
  }
}

void SessionFiles::Save(SessionId id, const Reply& reply) {
  WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& session) {
    if (!session.ok()) return reply(session.status());
    const Status status = CheckSavable(**session);
    if (!status.ok()) return reply(status);
    if ((*session)->is_parked()) return reply(OkStatus());
    if (IsShared(**session)) return ParkShared(*session, /*park=*/false, reply);
    StartSave(*session, /*park=*/false, /*free_now=*/false, reply);
  });
}

StatusOr<SessionSnapshot> SessionFiles::SnapshotOf(const Session& session) {
  SessionSnapshot snapshot;
  snapshot.tokens = session.tokens;
  if (!session.tokens.empty()) {
    snapshot.adapters = session.saved_adapters();
    snapshot.invoked_at = session.invoked_at;
  }
  snapshot.used_us = WallClockMicros() - (NowMicros() - session.last_used_us);
  WEFT_ASSIGN_OR_RETURN(snapshot.state, memory_->ReadState(session));
  return snapshot;
}

bool SessionFiles::SaveHasRoom(const Session& session) const {
  const int64_t most = std::clamp(memory_->budget_bytes() / 8, kMinSaveBytes, kMaxSaveBytes);
  return save_bytes_ == 0 || save_bytes_ + memory_->BytesOf(session) <= most;
}

void SessionFiles::StartSave(Session* session, bool park, bool free_now, const Reply& reply) {
  works_.Begin(session, FileWork::kSaving);
  saves_.push_back({session->id, park, free_now, reply});
  PumpSaves();
}

void SessionFiles::PumpSaves() {
  while (!saves_.empty()) {
    Session* const session = sessions_->Find(saves_.front().id);
    if (session != nullptr && !saves_abandoned_ && !SaveHasRoom(*session)) return;
    const WaitingSave save = std::move(saves_.front());
    saves_.pop_front();
    if (session != nullptr && !saves_abandoned_) {
      SaveNow(session, save);
      continue;
    }
    works_.End(save.id);
    save.reply(DeadlineExceeded("the time for saving ran out"));
  }
}

void SessionFiles::SaveNow(Session* session, const WaitingSave& save) {
  auto snapshot = SnapshotOf(*session);
  if (!snapshot.ok()) {
    works_.End(save.id);
    return save.reply(snapshot.status());
  }
  if (disk_ != nullptr && snapshot->state.n_tokens > 0) {
    const Status fits = disk_->MakeRoomForFile(SessionStore::BytesOfFile(*snapshot));
    if (!fits.ok() && !save.free_now) {
      works_.End(save.id);
      return save.reply(fits);
    }
    // Nobody asked for the state, only that the tokens are safe.
    if (!fits.ok()) snapshot->state = {};
  }
  const int64_t bytes = memory_->BytesOf(*session);
  if (save.free_now) {
    memory_->Drop(session);
    memory_->ReturnFreed();
  }
  publisher_->Touch(session);
  save_bytes_ += bytes;
  const auto finish = [this, id = session->id, version = session->changes, park = save.park,
                       n_tokens = session->n_tokens(), reply = save.reply](const Status& status) {
    works_.End(id);
    Session* const self = sessions_->Find(id);
    if (self != nullptr && status.ok()) self->SetKept(version);
    if (self != nullptr) FinishSave(self, park, n_tokens, status);
    reply(status);
  };
  // The next turn replaces the file by one of tokens alone, after which a crash finds the state in
  // blocks or nowhere. So the session is free, and the caller told, once both are written.
  const bool waits_for_blocks = !save.free_now;
  store_->Save(session->domain, session->name, *std::move(snapshot),
               [=, this, id = session->id](const Status& status) {
                 save_bytes_ -= bytes;
                 if (status.ok() && waits_for_blocks) {
                   keeper_->WhenStateIsWritten(id, [=] { finish(OkStatus()); });
                 } else {
                   finish(status);
                 }
                 PumpSaves();
               });
}

void SessionFiles::FinishSave(Session* session, bool park, int64_t n_tokens, const Status& status) {
  if (!status.ok()) {
    session->note = StrCat("saving failed: ", Message(status));
    // Its tokens may be there all the same.
    if (!session->is_kept()) keeper_->NoteSave(session, status);
  } else {
    if (session->is_kept()) keeper_->NoteSave(session, status);
    session->on_disk.Become(OnDisk::kSaved);
    session->saved_tokens = n_tokens;
    ++parks_;
    if (park) BecomeParked(session);
  }
  RestoreForTurn(session);  // a turn that arrived meanwhile needs the session back
}

void SessionFiles::BecomeParked(Session* session) {
  publisher_->Touch(session);
  memory_->Drop(session);
  memory_->ReturnFreed();
  if (!IsShared(*session)) session->on_disk.Become(OnDisk::kSaved);
  session->saved_tokens = session->n_tokens();
  session->tokens = {};
  session->note.clear();
  const bool has_turn = session->stage == SessionStage::kQueued;
  session->stage.Become(has_turn ? SessionStage::kAwaited : SessionStage::kParked);
}

// --- restoring ------------------------------------------------------------------------

void SessionFiles::Restore(SessionId id, const Reply& reply) {
  WhenFree(id, /*with_state=*/true,
           [=](const StatusOr<Session*>& session) { reply(session.status()); });
}

void SessionFiles::RestoreForTurn(Session* session) {
  if (session->is_at_work()) return;
  if (session->stage == SessionStage::kAwaited) StartRestore(session, [](const Status&) {});
}

void SessionFiles::StartRestore(Session* session, const Reply& reply) {
  const SessionId id = session->id;
  session->restore_error = OkStatus();
  works_.Begin(session, FileWork::kRestoring);
  store_->Load(session->tenant, session->domain, session->name,
               [this, id, reply](StatusOr<SessionSnapshot> loaded) {
                 works_.End(id);
                 FinishRestore(id, std::move(loaded), reply);
               });
}

void SessionFiles::FinishRestore(SessionId id, StatusOr<SessionSnapshot> loaded,
                                 const Reply& reply) {
  Session* const session = sessions_->Find(id);
  if (session == nullptr) return reply(NotFound("the session was closed meanwhile"));
  if (loaded.ok()) {
    // The backend trusts its tokens; files are not trusted.
    const auto outside = [&](TokenId token) {
      return !IsRow(token) && (token < 0 || token >= options_.n_vocab);
    };
    if (std::any_of(loaded->tokens.begin(), loaded->tokens.end(), outside)) {
      loaded = DataLoss("the session's file has tokens that are not in the model's vocabulary");
    } else if (loaded->tokens.has_rows()) {
      const Status fit = MakeRoomForRows(0, session);
      if (!fit.ok()) loaded = fit;  // and these are gone
    }
  }
  StatusOr<AdapterMixRef> adapters = AdapterMixRef();
  if (loaded.ok()) {
    adapters = adapters_->OfSaved(loaded->adapters);
    if (!adapters.ok()) loaded = adapters.status();
  }
  if (loaded.ok() && loaded->invoked_at != kNotInvoked &&
      (*adapters == nullptr || (*adapters)->invocation.empty())) {
    loaded = DataLoss("the session's file says where an adapter begins to act, and names none");
  }
  if (!loaded.ok()) {
    session->note = std::string(Message(loaded.status()));
    // Another server may be able to read it.
    if (IsShared(*session) && IsUnreadable(loaded.status())) {
      store_->shared()->Release(session->domain, session->name, [](const Status&) {});
    }
    if (session->has_turn) session->restore_error = loaded.status();
    return reply(loaded.status());
  }
  session->SetAdapters(*adapters, loaded->invoked_at);
  TakeRestored(session, *std::move(loaded));
  // A turn looks for the rest itself. Of a shared session nobody may want more than the tokens.
  const auto done = [reply] { reply(OkStatus()); };
  const bool wants_state = !session->has_turn && !IsShared(*session);
  if (!wants_state || !StartLoad(session, session->n_tokens(), done)) done();
}

void SessionFiles::TakeRestored(Session* session, SessionSnapshot loaded) {
  session->tokens = std::move(loaded.tokens);
  session->note = std::move(loaded.note);
  const bool has_turn = session->stage == SessionStage::kAwaited;
  session->stage.Become(has_turn ? SessionStage::kQueued : SessionStage::kReady);
  session->last_used_us = NowMicros();
  ++session->changes;
  // What the state directory has of a session that the store has, too, is from before.
  const bool is_older = IsShared(*session) && !loaded.is_new && session->is_saved();
  if (is_older) session->on_disk.Become(OnDisk::kNothing);
  if (!loaded.is_new) session->SetKept(session->changes);
  session->taken_tokens = loaded.state_tokens;
  ++restores_;
  while (loaded.state.n_tokens > 0) {
    const Status status = memory_->WriteState(session, loaded.state);
    if (status.ok()) break;
    if (status.code() == StatusCode::kResourceExhausted && GiveUpIdleState()) continue;
    // The tokens remain; the state is recomputed.
    session->note = StrCat("the saved state could not be used: ", Message(status));
    break;
  }
  session->from_disk += session->computed();
  publisher_->Touch(session);
}

}  // namespace weft
