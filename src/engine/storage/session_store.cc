#include "engine/storage/session_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace weft {
namespace {

// File systems allocate blocks of this size.
int64_t AllocatedBytes(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

Status OutOfTime() { return DeadlineExceeded("the time for saving ran out"); }

// Supplies a session's parts in the order in which a file is written.
StateSource SourceOf(const SessionSnapshot& snapshot, const std::atomic<bool>& abandoned) {
  return [&snapshot, &abandoned](int group, int64_t page, std::span<std::byte> out) -> Status {
    if (abandoned) return OutOfTime();
    if (group == kRowPart) {
      const auto& row = *snapshot.tokens.rows()[static_cast<size_t>(page)].row;
      std::ranges::copy(std::as_bytes(std::span(row.values)), out.begin());
      return OkStatus();
    }
    const StateMemory::SavedState& state = snapshot.state;
    const auto part = [&]() -> const std::vector<std::byte>& {
      if (group == kSlotPart) return state.slot;
      if (group == kCheckpointPart) return state.checkpoints[static_cast<size_t>(page)].slot;
      const auto& pages = state.groups[static_cast<size_t>(group)];
      return pages.pages[static_cast<size_t>(page - pages.first_page)];
    };
    std::copy(part().begin(), part().end(), out.begin());
    return OkStatus();
  };
}

// Collects a file's parts. The head has been checked: groups, order and sizes fit.
StateSink SinkOf(const SessionHead& head, StateMemory::SavedState* state) {
  return [&head, state](int group, int64_t page, std::span<const std::byte> in) -> Status {
    if (group == kSlotPart) {
      state->slot.assign(in.begin(), in.end());
    } else if (group == kCheckpointPart) {
      state->checkpoints.push_back(
          {head.checkpoints[static_cast<size_t>(page)], {in.begin(), in.end()}});
    } else {
      state->groups[static_cast<size_t>(group)].pages.emplace_back(in.begin(), in.end());
    }
    return OkStatus();
  };
}

}  // namespace

StatusOr<std::unique_ptr<SessionStore>> SessionStore::Open(
    const std::string& path, Identity identity, const SharedStoreOptions& shared, RowTable* rows,
    PostBack post_back, const std::function<void(const std::string&)>& notice) {
  WEFT_ASSIGN_OR_RETURN(auto directory, StateDirectory::Open(path));
  std::unique_ptr<SessionStore> store(
      new SessionStore(std::move(directory), std::move(identity), rows, post_back));
  if (shared.objects == nullptr) return store;
  store->shared_ = std::make_unique<SharedSessions>(
      SessionHeads::Options{
          .objects = shared.objects, .owner = shared.worker_url, .lease = shared.lease},
      std::move(post_back), notice);
  return store;
}

// --- bytes ------------------------------------------------------------------------------

int64_t SessionStore::BytesOfFile(const SessionSnapshot& snapshot) {
  // Sections, description, names.
  constexpr int64_t kSectionBytes = 64, kHeadBytes = 2048;
  int64_t bytes = kHeadBytes + std::ssize(snapshot.tokens) * int64_t{sizeof(TokenId)} +
                  snapshot.tokens.row_bytes();
  const auto add = [&bytes](const std::vector<std::byte>& part) {
    bytes += std::ssize(part) + kSectionBytes;
  };
  for (const auto& group : snapshot.state.groups) {
    for (const auto& page : group.pages) add(page);
  }
  add(snapshot.state.slot);
  for (const auto& checkpoint : snapshot.state.checkpoints) add(checkpoint.slot);
  return AllocatedBytes(bytes);
}

void SessionStore::AddFileBytes(int64_t bytes) {
  file_bytes_ += bytes;
  if (changed_) changed_(file_bytes_);
}

void SessionStore::SetFile(const std::string& domain, const std::string& name, int64_t bytes) {
  int64_t& known = files_[{domain, name}];
  const int64_t former = std::exchange(known, AllocatedBytes(bytes));
  if (known == 0) files_.erase({domain, name});
  AddFileBytes(AllocatedBytes(bytes) - former);
}

StatusOr<std::vector<SavedSession>> SessionStore::ListAll(std::vector<std::string>* strangers) {
  WEFT_ASSIGN_OR_RETURN(std::vector<SavedSession> saved, directory_->ListAll(strangers));
  for (const SavedSession& file : saved) SetFile(file.domain, file.name, file.file_bytes);
  return saved;
}

// --- files ------------------------------------------------------------------------------

SessionHead SessionStore::MakeHead(const std::string& domain, const std::string& name,
                                   const SessionSnapshot& snapshot) const {
  SessionHead head;
  head.domain = domain;
  head.name = name;
  head.model = FingerprintOf(identity_.model);
  head.layout = FingerprintOf(identity_.layout);
  head.kv_type = identity_.kv_type;
  head.created_us = WallClockMicros();
  head.updated_us = snapshot.used_us;
  head.tokens = snapshot.tokens.WithoutIds();
  if (snapshot.tokens.has_rows()) head.row_values = identity_.row_values;
  head.adapters = snapshot.adapters;
  // A text that was cut before that position is as one without the invocation.
  if (snapshot.invoked_at < std::ssize(snapshot.tokens)) head.adapter_from = snapshot.invoked_at;
  for (const History::Place& place : snapshot.tokens.rows()) {
    const RowSpan& span = *place.row->span;
    if (span.form.stands_alone() || place.row->index > 0) continue;
    head.spans.push_back({.first = place.position,
                          .n_rows = std::ssize(span.rows),
                          .grid_rows = span.form.grid_rows,
                          .grid_columns = span.form.grid_columns,
                          .mutual = span.form.mutual});
  }
  const StateMemory::SavedState& state = snapshot.state;
  head.state_tokens = state.n_tokens;
  if (state.n_tokens == 0) return head;
  head.page_tokens = identity_.sizes.page_tokens;
  for (size_t g = 0; g < state.groups.size(); ++g) {
    head.groups.push_back(
        {.page_bytes = identity_.sizes.page_bytes[g], .first_page = state.groups[g].first_page});
  }
  head.slot_bytes = static_cast<int64_t>(state.slot.size());
  for (const StateMemory::SavedCheckpoint& checkpoint : state.checkpoints) {
    head.checkpoints.push_back(checkpoint.n_tokens);
  }
  return head;
}

void SessionStore::Save(const std::string& domain, const std::string& name,
                        SessionSnapshot snapshot, std::function<void(Status)> done) {
  if (shared_ != nullptr) {
    return SaveShared(domain, name, /*is_new=*/false, std::move(snapshot), std::move(done));
  }
  auto shared = std::make_shared<SessionSnapshot>(std::move(snapshot));
  // Until the new file has replaced the former one, both are there.
  const int64_t most = BytesOfFile(*shared);
  AddFileBytes(most);
  const auto save = [this, domain, name, shared, most, done = std::move(done)] {
    Status status = abandoned_ ? OutOfTime() : OkStatus();
    if (status.ok()) {
      status = directory_->Save(MakeHead(domain, name, *shared), SourceOf(*shared, abandoned_));
    }
    const int64_t bytes = directory_->FileBytes(domain, name);
    post_back_([this, domain, name, most, bytes, done, status] {
      SetFile(domain, name, bytes);
      AddFileBytes(-most);
      if (status.ok()) written_bytes_ += bytes;
      done(status);
    });
  };
  worker_.Post(save, {{domain, name}});
}

// A program that was allowed more may have written the file.
Status SessionStore::CheckRows(const SessionHead& head) const {
  const int64_t n_rows = head.n_rows();
  const int64_t bytes = RowTable::BytesOf(n_rows, head.row_values);
  if (bytes <= identity_.max_row_bytes) return OkStatus();
  return FailedPrecondition("the session's file has ", n_rows, " input embeddings, which take ",
                            HumanBytes(static_cast<uint64_t>(bytes)), "; here a session may hold ",
                            HumanBytes(static_cast<uint64_t>(identity_.max_row_bytes)));
}

// Rows are not trusted either: the backend computes with them as they are.
StatusOr<History> SessionStore::ReadTokens(SessionReader* reader, RowTable* table) const {
  const SessionHead& head = reader->head();
  if (head.row_values != 0 && head.row_values != identity_.row_values) {
    return DataLoss("the session's file has rows of ", head.row_values, " values in a model of ",
                    identity_.row_values);
  }
  const auto width = static_cast<size_t>(head.row_values);
  std::vector<float> values(static_cast<size_t>(head.n_rows()) * width);
  const auto take = [&](int, int64_t row, std::span<const std::byte> bytes) -> Status {
    const std::span<float> to = std::span(values).subspan(static_cast<size_t>(row) * width, width);
    std::memcpy(to.data(), bytes.data(), bytes.size());
    if (!std::ranges::all_of(to, [](float value) { return std::isfinite(value); })) {
      return DataLoss("the session's file has a row with numbers that are not finite");
    }
    return OkStatus();
  };
  WEFT_RETURN_IF_ERROR(reader->ReadRows(take));
  History tokens;
  std::span<const float> left(values);
  auto span = head.spans.begin();
  for (size_t i = 0; i < head.tokens.size(); i = tokens.size()) {
    if (!IsRow(head.tokens[i])) {
      tokens.push_back(head.tokens[i]);
      continue;
    }
    const bool begins = span != head.spans.end() && span->first == static_cast<int64_t>(i);
    const SessionHead::Span rows = begins ? *span++ : SessionHead::Span{.n_rows = 1};
    const size_t n_values = static_cast<size_t>(rows.n_rows) * width;
    for (RowRef& row : table->KeepSpan(left.first(n_values), rows.n_rows,
                                       {rows.grid_rows, rows.grid_columns, rows.mutual})) {
      tokens.Add(std::move(row));
    }
    left = left.subspan(n_values);
  }
  return tokens;
}

StatusOr<SessionSnapshot> SessionStore::LoadNow(const std::string& domain, const std::string& name,
                                                RowTable* rows) const {
  WEFT_ASSIGN_OR_RETURN(const auto reader, directory_->Load(domain, name));
  return ReadSnapshot(reader.get(), rows);
}

StatusOr<SessionSnapshot> SessionStore::ReadSnapshot(SessionReader* reader, RowTable* rows) const {
  WEFT_RETURN_IF_ERROR(reader->CheckModel(FingerprintOf(identity_.model)));
  const SessionHead& head = reader->head();
  if (rows != nullptr) WEFT_RETURN_IF_ERROR(CheckRows(head));
  RowTable passing;
  SessionSnapshot snapshot;
  WEFT_ASSIGN_OR_RETURN(snapshot.tokens, ReadTokens(reader, rows != nullptr ? rows : &passing));
  snapshot.adapters = head.adapters;
  snapshot.invoked_at = head.adapter_from.value_or(kNotInvoked);
  snapshot.used_us = head.updated_us;
  if (head.state_tokens == 0) return snapshot;
  Status status = reader->CheckLayout(FingerprintOf(identity_.layout), identity_.kv_type);
  if (status.ok()) {
    for (const SessionHead::Group& group : head.groups) {
      snapshot.state.groups.push_back({.first_page = group.first_page});
    }
    status = reader->ReadState(SinkOf(head, &snapshot.state));
  }
  if (status.ok()) {
    snapshot.state.n_tokens = head.state_tokens;
  } else {
    snapshot.state = {};
    snapshot.note = StrCat("the saved state is not usable and is recomputed from the tokens: ",
                           Message(status));
  }
  return snapshot;
}

void SessionStore::Load(const std::string& tenant, const std::string& domain,
                        const std::string& name,
                        std::function<void(StatusOr<SessionSnapshot>)> done) {
  if (shared_ != nullptr) return LoadShared(tenant, domain, name, std::move(done));
  const auto load = [this, domain, name, done = std::move(done)] {
    auto loaded = std::make_shared<StatusOr<SessionSnapshot>>(LoadNow(domain, name, &rows_));
    post_back_([done, loaded] { done(std::move(*loaded)); });
  };
  worker_.PostFirst(tenant, load, Worker::File(domain, name));
}

void SessionStore::Remove(const std::string& domain, const std::string& name,
                          std::function<void(Status)> done) {
  if (shared_ == nullptr) return RemoveFile(domain, name, std::move(done));
  shared_->Remove(domain, name, [this, domain, name, done = std::move(done)](const Status& status) {
    // One from before would come back once the store has forgotten that it is deleted.
    if (status.ok() && HasFile(domain, name)) RemoveFile(domain, name, [](const Status&) {});
    done(status);
  });
}

void SessionStore::RemoveFile(const std::string& domain, const std::string& name,
                              std::function<void(Status)> done) {
  const auto remove = [this, domain, name, done = std::move(done)] {
    const Status status = directory_->Remove(domain, name);
    const int64_t bytes = directory_->FileBytes(domain, name);
    post_back_([this, domain, name, bytes, done, status] {
      SetFile(domain, name, bytes);
      done(status);
    });
  };
  worker_.Post(remove, {{domain, name}});
}

Status SessionStore::RenameNow(const std::string& domain, const std::string& from,
                               const std::string& to) {
  WEFT_ASSIGN_OR_RETURN(const SessionSnapshot snapshot, LoadNow(domain, from, nullptr));
  WEFT_RETURN_IF_ERROR(
      directory_->Save(MakeHead(domain, to, snapshot), SourceOf(snapshot, abandoned_)));
  return directory_->Remove(domain, from);
}

void SessionStore::Rename(const std::string& domain, const std::string& from, const std::string& to,
                          std::function<void(Status)> done) {
  const auto found = files_.find({domain, from});
  const int64_t most = found != files_.end() ? found->second : 0;
  AddFileBytes(most);
  const auto rename = [this, domain, from, to, most, done = std::move(done)] {
    const Status status = RenameNow(domain, from, to);
    const int64_t from_bytes = directory_->FileBytes(domain, from);
    const int64_t to_bytes = directory_->FileBytes(domain, to);
    post_back_([this, domain, from, to, most, from_bytes, to_bytes, done, status] {
      SetFile(domain, from, from_bytes);
      SetFile(domain, to, to_bytes);
      AddFileBytes(-most);
      if (status.ok()) written_bytes_ += to_bytes;
      done(status);
    });
  };
  worker_.Post(rename, {{domain, from}, {domain, to}});
}

// --- a shared store ---------------------------------------------------------------------

StatusOr<std::string> SessionStore::MakeBytes(const std::string& domain, const std::string& name,
                                              const SessionSnapshot& snapshot) const {
  std::string bytes;
  WEFT_RETURN_IF_ERROR(
      WriteSession(MakeHead(domain, name, snapshot), SourceOf(snapshot, abandoned_),
                   [&bytes](std::span<const std::byte> part) {
                     bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
                     return OkStatus();
                   }));
  return bytes;
}

StatusOr<SessionSnapshot> SessionStore::ReadShared(const std::string& domain,
                                                   const std::string& name,
                                                   std::string_view bytes) const {
  WEFT_ASSIGN_OR_RETURN(const auto reader,
                        SessionReader::Open(NewMemorySource(std::as_bytes(std::span(bytes)))));
  if (reader->head().domain != domain || reader->head().name != name) {
    return DataLoss("what the store has of this session is another session");
  }
  return ReadSnapshot(reader.get(), &rows_);
}

void SessionStore::SaveShared(const std::string& domain, const std::string& name, bool is_new,
                              SessionSnapshot snapshot, std::function<void(Status)> done) {
  snapshot.state = {};  // blocks have it
  const auto shared = std::make_shared<const SessionSnapshot>(std::move(snapshot));
  shared_->Commit(
      domain, name, is_new,
      [=, this]() -> StatusOr<SessionHeads::Contents> {
        WEFT_ASSIGN_OR_RETURN(std::string bytes, MakeBytes(domain, name, *shared));
        return SessionHeads::Contents{std::move(bytes), shared->state_tokens};
      },
      [this, domain, name, done = std::move(done)](const Status& status) {
        if (status.ok() && HasFile(domain, name)) {
          RemoveFile(domain, name, [](const Status&) {});
        }
        done(status);
      });
}

void SessionStore::RemoveIdle(const std::string& domain, const std::string& name,
                              std::function<void(Status)> done) {
  const bool has_file = HasFile(domain, name);
  shared_->RemoveOwn(domain, name, [=, this](const Status& status) {
    has_file ? RemoveFile(domain, name, done) : done(status);
  });
}

void SessionStore::Look(const std::string& domain, const std::string& name,
                        std::function<void(StatusOr<Seen>)> done) {
  shared_->Peek(domain, name, [=, this](const StatusOr<SessionHeads::Seen>& seen) {
    StatusOr<Seen> answer = Seen();
    if (!seen.ok()) {
      answer = seen.status();
    } else {
      const auto reader = SessionReader::Open(
          NewMemorySource(std::as_bytes(std::span(std::string_view(seen->session)))));
      if (reader.ok()) {
        answer = Seen{std::ssize((*reader)->head().tokens), seen->owner};
      } else {
        answer = reader.status();
      }
    }
    post_back_([done, answer] { done(answer); });
  });
}

void SessionStore::CreateShared(const std::string& domain, const std::string& name,
                                SessionSnapshot snapshot, std::function<void(Status)> done) {
  if (HasFile(domain, name)) {
    return post_back_([done, name] {
      done(AlreadyExists("the state directory has a session ", Printable(name), " already"));
    });
  }
  SaveShared(domain, name, /*is_new=*/true, std::move(snapshot), std::move(done));
}

void SessionStore::LoadShared(const std::string& tenant, const std::string& domain,
                              const std::string& name,
                              std::function<void(StatusOr<SessionSnapshot>)> done) {
  shared_->Take(domain, name, [=, this](const StatusOr<SharedSessions::Taken>& taken) {
    const bool is_there = taken.ok() && !taken->session.empty();
    const bool is_unknown = taken.ok() && !is_there && !taken->was_deleted;
    auto loaded = std::make_shared<StatusOr<SessionSnapshot>>(SessionSnapshot());
    if (is_there) *loaded = ReadShared(domain, name, taken->session);
    if (is_there && loaded->ok()) (*loaded)->state_tokens = taken->state_tokens;
    if (!taken.ok()) *loaded = taken.status();
    if (taken.ok() && !is_there) (*loaded)->is_new = true;
    post_back_([=, this] {
      if (is_unknown && HasFile(domain, name)) {
        return LoadOld(tenant, domain, name, done);
      }
      done(std::move(*loaded));
    });
  });
}

void SessionStore::LoadOld(const std::string& tenant, const std::string& domain,
                           const std::string& name,
                           std::function<void(StatusOr<SessionSnapshot>)> done) {
  const auto load = [this, domain, name, done = std::move(done)] {
    auto loaded = std::make_shared<StatusOr<SessionSnapshot>>(LoadNow(domain, name, &rows_));
    // Somebody may have removed the file.
    if (loaded->status().code() == StatusCode::kNotFound) *loaded = SessionSnapshot();
    if (loaded->ok()) (*loaded)->is_new = true;
    post_back_([done, loaded] { done(std::move(*loaded)); });
  };
  worker_.PostFirst(tenant, load, Worker::File(domain, name));
}

}  // namespace weft
