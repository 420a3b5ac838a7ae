#include "doors/api/page/conversation_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/new_id.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

constexpr std::string_view kSuffix = ".json";
constexpr char kStoreFile[] = ".store";
constexpr char kLastFile[] = ".last";
constexpr std::string_view kHead = "weft-conversation 1 ";
constexpr size_t kMaxHeadBytes = 64;
constexpr uint64_t kMaxStoreNameBytes = 100;
constexpr uint64_t kMaxVersionBytes = 20;

std::string FileOf(const std::string& id) { return StrCat(id, kSuffix); }

StatusOr<std::string> ReadFile(const FileDescriptor& dir, const std::string& name,
                               uint64_t max_bytes) {
  WEFT_ASSIGN_OR_RETURN(const auto source, OpenFileSource(dir.get(), name, name));
  std::string text(std::min(source->size(), max_bytes), '\0');
  WEFT_RETURN_IF_ERROR(source->Read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status WriteFile(const FileDescriptor& dir, const std::string& name, std::string_view head,
                 std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(dir.get(), name, name));
  WEFT_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(head))));
  WEFT_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(text))));
  return file->Commit();
}

struct Head {
  int64_t version = 0;
  size_t n_bytes = 0;
};

// The first line of a file.
StatusOr<Head> ReadHead(std::string_view text) {
  const size_t end = text.substr(0, kMaxHeadBytes).find('\n');
  Head head{.n_bytes = end + 1};
  if (end == text.npos || !text.starts_with(kHead) ||
      !ParseInt64(text.substr(kHead.size(), end - kHead.size()), &head.version) ||
      head.version <= 0) {
    return DataLoss("the file of this conversation is damaged; delete the conversation");
  }
  return head;
}

// Made when the folder is new: a browser that knows another store's versions starts afresh.
StatusOr<std::string> NameOfStore(const FileDescriptor& dir) {
  auto name = ReadFile(dir, kStoreFile, kMaxStoreNameBytes);
  if (name.ok() || name.status().code() != StatusCode::kNotFound) return name;
  const std::string made = NewId("store-");
  WEFT_RETURN_IF_ERROR(WriteFile(dir, kStoreFile, "", made));
  return made;
}

// The version of the last conversation that was deleted, 0 for none: no file tells it any more.
int64_t LastDeleted(const FileDescriptor& dir) {
  int64_t version = 0;
  (void)ParseInt64(ReadFile(dir, kLastFile, kMaxVersionBytes).value_or("0"), &version);
  return version;
}

std::string Mebibytes(int64_t n_bytes) { return StrCat(n_bytes >> 20, " MiB"); }

}  // namespace

Status ValidateConversationId(std::string_view id) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  if (!id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), is_plain)) {
    return OkStatus();
  }
  return InvalidArgument("a conversation's id has 1 to 64 of a-z, 0-9 and '-'");
}

StatusOr<ConversationStore::Domain*> ConversationStore::Open(const std::string& domain) {
  if (const auto it = domains_.find(domain); it != domains_.end()) return &it->second;
  if (!domain.empty()) WEFT_RETURN_IF_ERROR(ValidateConversationId(domain));
  const std::string path = StrCat(state_dir_, "/conversations/@", domain);
  WEFT_RETURN_IF_ERROR(CreateDirectories(path));
  Domain opened;
  WEFT_ASSIGN_OR_RETURN(opened.dir, OpenOwnDirectory(AT_FDCWD, path, path));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> files, NamesIn(opened.dir.get(), path));
  for (const std::string& file : files) {
    if (file.starts_with(AtomicFile::kTempPrefix)) {
      (void)unlinkat(opened.dir.get(), file.c_str(), 0);
      continue;
    }
    if (!file.ends_with(kSuffix)) continue;
    const std::string id = file.substr(0, file.size() - kSuffix.size());
    if (!ValidateConversationId(id).ok()) continue;
    WEFT_ASSIGN_OR_RETURN(const auto source, OpenFileSource(opened.dir.get(), file, file));
    std::string begin(std::min<uint64_t>(source->size(), kMaxHeadBytes), '\0');
    WEFT_RETURN_IF_ERROR(source->Read(0, std::as_writable_bytes(std::span(begin))));
    const Head head = ReadHead(begin).value_or(Head{.version = kDamaged});
    const auto n_bytes = static_cast<int64_t>(source->size() - head.n_bytes);
    opened.items[id] = {.version = head.version, .n_bytes = n_bytes};
    opened.n_bytes += n_bytes;
    opened.last_version = std::max(opened.last_version, head.version);
  }
  opened.last_version = std::max(opened.last_version, LastDeleted(opened.dir));
  WEFT_ASSIGN_OR_RETURN(opened.store, NameOfStore(opened.dir));
  return &(domains_[domain] = std::move(opened));
}

StatusOr<ConversationStore::Listing> ConversationStore::List(const std::string& domain) {
  // A count of changes alone would be the same after a restart, and for another key.
  static const std::string process = NewId("", 8);
  MutexLock lock(&mutex_);
  WEFT_ASSIGN_OR_RETURN(const Domain* const opened, Open(domain));
  return Listing{.store = opened->store,
                 .tag = StrCat(opened->store, "-", process, "-", opened->n_changes),
                 .items = opened->items};
}

StatusOr<ConversationStore::Conversation> ConversationStore::Get(const std::string& domain,
                                                                 const std::string& id) {
  WEFT_RETURN_IF_ERROR(ValidateConversationId(id));
  MutexLock lock(&mutex_);
  WEFT_ASSIGN_OR_RETURN(const Domain* const opened, Open(domain));
  if (!opened->items.contains(id)) return NotFound("there is no conversation \"", id, "\"");
  WEFT_ASSIGN_OR_RETURN(std::string text, ReadFile(opened->dir, FileOf(id), UINT64_MAX));
  WEFT_ASSIGN_OR_RETURN(const Head head, ReadHead(text));
  text.erase(0, head.n_bytes);
  return Conversation{.version = head.version, .text = std::move(text)};
}

Status ConversationStore::CheckRoom(const Domain& domain, const Item& former,
                                    int64_t n_bytes) const {
  if (n_bytes > limits_.conversation_bytes) {
    return OutOfRange("a conversation may have ", Mebibytes(limits_.conversation_bytes),
                      "; fork it from an earlier message, or attach less");
  }
  if (n_bytes > former.n_bytes &&
      domain.n_bytes - former.n_bytes + n_bytes > limits_.bytes_of_one_key) {
    return OutOfRange("the conversations of a key may have ", Mebibytes(limits_.bytes_of_one_key),
                      "; export some and delete them");
  }
  const auto n = static_cast<int64_t>(domain.items.size());
  if (former.version == 0 && n >= limits_.conversations_of_one_key) {
    return OutOfRange("a key may have ", limits_.conversations_of_one_key,
                      " conversations; export some and delete them");
  }
  return OkStatus();
}

StatusOr<int64_t> ConversationStore::Put(const std::string& domain, const std::string& id,
                                         int64_t based_on, std::string_view text) {
  WEFT_RETURN_IF_ERROR(ValidateConversationId(id));
  MutexLock lock(&mutex_);
  WEFT_ASSIGN_OR_RETURN(Domain* const opened, Open(domain));
  const auto it = opened->items.find(id);
  const Item former = it == opened->items.end() ? Item() : it->second;
  if (former.version == 0 && based_on != 0) {
    return NotFound("the conversation \"", id, "\" was deleted; put it with version=0 to keep it");
  }
  if (former.version != based_on && former.version != kDamaged) {
    return MakeStatus(StatusCode::kAborted, "the conversation is at version ", former.version,
                      ", not ", based_on, "; get that one, and merge");
  }
  const auto n_bytes = static_cast<int64_t>(text.size());
  WEFT_RETURN_IF_ERROR(CheckRoom(*opened, former, n_bytes));
  // The clock helps where the file with the largest version is damaged.
  const int64_t version = std::max(opened->last_version + 1, WallClockMicros() / 1000);
  WEFT_RETURN_IF_ERROR(WriteFile(opened->dir, FileOf(id), StrCat(kHead, version, "\n"), text));
  opened->items[id] = {.version = version, .n_bytes = n_bytes};
  opened->n_bytes += n_bytes - former.n_bytes;
  opened->last_version = version;
  ++opened->n_changes;
  return version;
}

Status ConversationStore::Delete(const std::string& domain, const std::string& id) {
  WEFT_RETURN_IF_ERROR(ValidateConversationId(id));
  MutexLock lock(&mutex_);
  WEFT_ASSIGN_OR_RETURN(Domain* const opened, Open(domain));
  const auto it = opened->items.find(id);
  if (it == opened->items.end()) return OkStatus();
  if (it->second.version == opened->last_version) {
    const std::string version = StrCat(opened->last_version);
    WEFT_RETURN_IF_ERROR(WriteFile(opened->dir, kLastFile, "", version));
  }
  if (unlinkat(opened->dir.get(), FileOf(id).c_str(), 0) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, StrCat("cannot delete the conversation \"", id, "\""));
  }
  opened->n_bytes -= it->second.n_bytes;
  opened->items.erase(it);
  ++opened->n_changes;
  return SyncDirectory(opened->dir.get(), "conversations");
}

}  // namespace weft::serve
