#include "engine/session_store.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace weft {
namespace {

// Supplies a state's parts in the order in which a file is written.
StateSource SourceOf(const StateMemory::SavedState& state, const std::atomic<bool>& abandoned) {
  return [&state, &abandoned](int group, int64_t page, std::span<std::byte> out) -> Status {
    if (abandoned) return DeadlineExceeded("the time for saving ran out");
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

StatusOr<std::unique_ptr<SessionStore>> SessionStore::Open(const std::string& path,
                                                           Identity identity, PostBack post_back) {
  WEFT_ASSIGN_OR_RETURN(auto directory, StateDirectory::Open(path));
  return std::unique_ptr<SessionStore>(
      new SessionStore(std::move(directory), std::move(identity), std::move(post_back)));
}

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
  head.tokens = snapshot.tokens;
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
  auto shared = std::make_shared<SessionSnapshot>(std::move(snapshot));
  worker_.Post([this, domain, name, shared, done = std::move(done)] {
    const Status status =
        directory_->Save(MakeHead(domain, name, *shared), SourceOf(shared->state, abandoned_));
    post_back_([done, status] { done(status); });
  });
}

StatusOr<SessionSnapshot> SessionStore::LoadNow(const std::string& domain,
                                                const std::string& name) const {
  WEFT_ASSIGN_OR_RETURN(const auto reader, directory_->Load(domain, name));
  WEFT_RETURN_IF_ERROR(reader->CheckModel(FingerprintOf(identity_.model)));
  const SessionHead& head = reader->head();
  SessionSnapshot snapshot;
  snapshot.tokens = head.tokens;
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

void SessionStore::Load(const std::string& domain, const std::string& name,
                        std::function<void(StatusOr<SessionSnapshot>)> done) {
  worker_.Post([this, domain, name, done = std::move(done)] {
    auto loaded = std::make_shared<StatusOr<SessionSnapshot>>(LoadNow(domain, name));
    post_back_([done, loaded] { done(std::move(*loaded)); });
  });
}

void SessionStore::Remove(const std::string& domain, const std::string& name,
                          std::function<void(Status)> done) {
  worker_.Post([this, domain, name, done = std::move(done)] {
    const Status status = directory_->Remove(domain, name);
    post_back_([done, status] { done(status); });
  });
}

Status SessionStore::RenameNow(const std::string& domain, const std::string& from,
                               const std::string& to) {
  WEFT_ASSIGN_OR_RETURN(const SessionSnapshot snapshot, LoadNow(domain, from));
  WEFT_RETURN_IF_ERROR(
      directory_->Save(MakeHead(domain, to, snapshot), SourceOf(snapshot.state, abandoned_)));
  return directory_->Remove(domain, from);
}

void SessionStore::Rename(const std::string& domain, const std::string& from, const std::string& to,
                          std::function<void(Status)> done) {
  worker_.Post([this, domain, from, to, done = std::move(done)] {
    const Status status = RenameNow(domain, from, to);
    post_back_([done, status] { done(status); });
  });
}

}  // namespace weft
