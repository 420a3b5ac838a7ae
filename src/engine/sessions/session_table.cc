#include "engine/sessions/session_table.h"

#include <utility>

#include "base/check.h"
#include "engine/state/prefix_domain.h"

namespace weft {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr int kIndexBits = 24;
constexpr int kGenerationBits = 24;
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;
constexpr uint64_t kGenerationMask = (uint64_t{1} << kGenerationBits) - 1;

SessionId MakeId(uint16_t tag, uint32_t generation, uint32_t index) {
  return {static_cast<uint64_t>(tag) << (kIndexBits + kGenerationBits) |
          static_cast<uint64_t>(generation) << kIndexBits | index};
}

}  // namespace

Status ValidateSessionName(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return InvalidArgument("a session name has at most ", kMaxNameBytes, " bytes, this one has ",
                           name.size());
  }
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return InvalidArgument("the session name \"", Printable(name),
                             "\" contains a control character");
    }
  }
  return OkStatus();
}

namespace {

Status ValidateDomain(std::string_view domain) {
  if (domain.starts_with(kAdapterMark)) {
    return InvalidArgument("a session's domain begins with a control character");
  }
  if (domain.size() <= kMaxNameBytes) return OkStatus();
  return InvalidArgument("a session's domain has at most ", kMaxNameBytes, " bytes, this one has ",
                         domain.size());
}

}  // namespace

SessionTable::SessionTable(uint16_t tag, int max_sessions, int max_per_domain)
    : tag_(tag),
      max_sessions_(max_sessions),
      max_per_domain_(max_per_domain > 0 ? max_per_domain : max_sessions) {}

StatusOr<Session*> SessionTable::CreateSaved(std::string_view domain, std::string_view name) {
  WEFT_RETURN_IF_ERROR(CheckNames(domain, name));
  Session* const session = Insert(
      domain, name, std::make_unique<Session>(SessionRole::kConversation, SessionStage::kParked));
  session->on_disk.Become(OnDisk::kSaved);
  return session;
}

Status SessionTable::CheckNames(std::string_view domain, std::string_view name) const {
  WEFT_RETURN_IF_ERROR(ValidateSessionName(name));
  WEFT_RETURN_IF_ERROR(ValidateDomain(domain));
  if (FindByName(domain, name) == nullptr) return OkStatus();
  return AlreadyExists("there is already a session named \"", Printable(name), "\"");
}

StatusOr<Session*> SessionTable::Create(std::string_view domain, std::string_view name) {
  WEFT_RETURN_IF_ERROR(CheckNames(domain, name));
  const auto own = of_domain_.find(domain);
  if (own != of_domain_.end() && own->second >= max_per_domain_) {
    return ResourceExhausted("there are already ", own->second,
                             " sessions, which is the limit; close one first");
  }
  if (n_sessions_ >= max_sessions_) {
    return ResourceExhausted(
        "there is no room for another session now; close one, or try again later");
  }
  return Insert(domain, name,
                std::make_unique<Session>(SessionRole::kConversation, SessionStage::kReady));
}

StatusOr<Session*> SessionTable::CreateForTurn(std::string_view domain) {
  WEFT_RETURN_IF_ERROR(ValidateDomain(domain));
  return Insert(domain, "", std::make_unique<Session>(SessionRole::kOfTurn, SessionStage::kReady));
}

StatusOr<Session*> SessionTable::CreateHolder(std::string_view domain) {
  WEFT_RETURN_IF_ERROR(ValidateDomain(domain));
  return Insert(domain, "", std::make_unique<Session>(SessionRole::kHolder, SessionStage::kReady));
}

Session* SessionTable::Insert(std::string_view domain, std::string_view name,
                              std::unique_ptr<Session> added) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Entry& entry = entries_[index];
  entry.generation = static_cast<uint32_t>((entry.generation + 1) & kGenerationMask);
  entry.session = std::move(added);
  Session* session = entry.session.get();
  session->id = MakeId(tag_, entry.generation, index);
  session->domain = std::string(domain);
  session->SetAdapters(nullptr);
  session->name = std::string(name);
  if (!name.empty()) names_[{session->domain, session->name}] = session;
  if (session->role == SessionRole::kConversation) {
    ++n_sessions_;
    ++of_domain_[session->domain];
  }
  return session;
}

Session* SessionTable::Find(SessionId id) const {
  const size_t index = IndexOf(id);
  if (id.value >> (kIndexBits + kGenerationBits) != tag_ || index >= entries_.size()) {
    return nullptr;
  }
  const Entry& entry = entries_[index];
  const uint64_t generation = (id.value >> kIndexBits) & kGenerationMask;
  return entry.generation == generation ? entry.session.get() : nullptr;
}

StatusOr<Session*> SessionTable::Get(SessionId id) const {
  if (Session* session = Find(id)) return session;
  return NoSession(tag_, id);
}

size_t SessionTable::IndexOf(SessionId id) { return id.value & kIndexMask; }

Status SessionTable::NoSession(uint16_t tag, SessionId id) {
  if (id.value >> (kIndexBits + kGenerationBits) != tag) {
    return FailedPrecondition("this session handle belongs to another engine");
  }
  return NotFound("this session is closed");
}

Session* SessionTable::FindByName(std::string_view domain, std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto it = names_.find({std::string(domain), std::string(name)});
  return it == names_.end() ? nullptr : it->second;
}

Status SessionTable::Rename(Session* session, std::string_view name) {
  WEFT_RETURN_IF_ERROR(ValidateSessionName(name));
  if (name == session->name) return OkStatus();
  if (FindByName(session->domain, name) != nullptr) {
    return AlreadyExists("there is already a session named \"", Printable(name), "\"");
  }
  if (!session->name.empty()) names_.erase({session->domain, session->name});
  session->name = std::string(name);
  if (!name.empty()) names_[{session->domain, session->name}] = session;
  return OkStatus();
}

void SessionTable::Remove(Session* session) {
  WEFT_CHECK(Find(session->id) == session, "removing a session that is not in the table");
  WEFT_CHECK(!session->idle.is_in_an_order(),
             "removing a session that is still in the order of use");
  if (!session->name.empty()) names_.erase({session->domain, session->name});
  const uint32_t index = static_cast<uint32_t>(IndexOf(session->id));
  if (session->role == SessionRole::kConversation) {
    --n_sessions_;
    const auto own = of_domain_.find(session->domain);
    if (--own->second == 0) of_domain_.erase(own);
  }
  entries_[index].session.reset();
  free_.push_back(index);
}

void SessionTable::ForEach(const std::function<void(Session*)>& visit) const {
  for (size_t place = 0; place < entries_.size(); ++place) {
    if (Session* const session = At(place)) visit(session);
  }
}

}  // namespace weft
