#include "engine/state/state_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weft {
namespace {

constexpr std::string_view kSuffix = ".session";
constexpr char kLockName[] = "lock";
// Longer percent encodings are replaced by the denser base 32.
constexpr size_t kMaxPercentBytes = 200;
constexpr char kBase32Mark = '=';
constexpr std::string_view kBase32 = "abcdefghijklmnopqrstuvwxyz234567";
constexpr std::string_view kHex = "0123456789abcdef";

std::string PercentEncode(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    const auto byte = static_cast<uint8_t>(c);
    if (plain) {
      out.push_back(c);
    } else {
      out.append({'%', kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  return out;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const size_t high = kHex.find(text[i + 1]);
    const size_t low = kHex.find(text[i + 2]);
    if (high == kHex.npos || low == kHex.npos) return std::nullopt;
    out.push_back(static_cast<char>(high << 4 | low));
    i += 2;
  }
  return out;
}

std::string Base32Encode(std::string_view name) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : name) {
    bits = (bits << 8) | static_cast<uint8_t>(c);
    for (n_bits += 8; n_bits >= 5; n_bits -= 5) out.push_back(kBase32[bits >> (n_bits - 5) & 31]);
    bits &= (1u << n_bits) - 1;
  }
  if (n_bits > 0) out.push_back(kBase32[bits << (5 - n_bits) & 31]);
  return out;
}

std::optional<std::string> Base32Decode(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const size_t digit = kBase32.find(c);
    if (digit == kBase32.npos) return std::nullopt;
    bits = (bits << 5) | static_cast<uint32_t>(digit);
    n_bits += 5;
    if (n_bits >= 8) {
      n_bits -= 8;
      out.push_back(static_cast<char>(bits >> n_bits));
      bits &= (1u << n_bits) - 1;
    }
  }
  return out;
}

// The domain of "@..."; nullopt for other names.
std::optional<std::string> DomainOf(std::string_view directory) {
  if (!directory.starts_with('@')) return std::nullopt;
  return NameOfSafeFile(directory.substr(1));
}

// The session of "....session"; nullopt for other names.
std::optional<std::string> SessionOf(std::string_view file) {
  if (!file.ends_with(kSuffix) || file.size() == kSuffix.size()) return std::nullopt;
  return NameOfSafeFile(file.substr(0, file.size() - kSuffix.size()));
}

StatusOr<FileDescriptor> TakeLock(int dir_fd, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(FileDescriptor lock, TryLock(dir_fd, kLockName, path));
  if (lock.ok()) return lock;
  return FailedPrecondition("the state directory ", Printable(path, 300),
                            " is in use by another process; stop it, or choose another");
}

// What went wrong with a session's file: that it is missing, or anything else, which leaves open
// whether there is one.
Status OrNotSaved(const Status& status, std::string_view name) {
  if (status.code() == StatusCode::kNotFound) {
    return NotFound("no session ", Printable(name), " is saved");
  }
  // Descriptors or memory; nothing is written here.
  if (status.code() == StatusCode::kResourceExhausted) {
    return Unavailable(Message(status), "; try again when less is going on");
  }
  return status;
}

}  // namespace

std::string SafeFileName(std::string_view name) {
  std::string encoded = PercentEncode(name);
  if (encoded.size() <= kMaxPercentBytes) return encoded;
  return StrCat(kBase32Mark, Base32Encode(name));
}

std::optional<std::string> NameOfSafeFile(std::string_view file_name) {
  const bool dense = file_name.starts_with(kBase32Mark);
  auto name = dense ? Base32Decode(file_name.substr(1)) : PercentDecode(file_name);
  // Only names that SafeFileName would produce.
  if (!name.has_value() || SafeFileName(*name) != file_name) return std::nullopt;
  return name;
}

StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Open(const std::string& given_path) {
  if (given_path.empty()) return InvalidArgument("the state directory has an empty name");
  std::string path = given_path;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  WEFT_RETURN_IF_ERROR(CreateDirectories(path));
  FileDescriptor dir(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.ok()) {
    const int error_number = errno;
    // It has just been created, so that something is in the way.
    if (error_number == ENOENT) {
      return FailedPrecondition("the state directory ", Printable(path, 300),
                                " is a link to a directory that is not there: create that, or "
                                "mount its disk");
    }
    return ErrnoStatus(error_number,
                       StrCat("cannot open the state directory ", Printable(path, 300)));
  }
  WEFT_ASSIGN_OR_RETURN(FileDescriptor lock, TakeLock(dir.get(), path));
  std::unique_ptr<StateDirectory> directory(
      new StateDirectory(path, std::move(dir), std::move(lock)));
  WEFT_RETURN_IF_ERROR(directory->RemoveLeftovers());
  return directory;
}

Status StateDirectory::RemoveLeftovers() {
  WEFT_ASSIGN_OR_RETURN(const auto names, NamesIn(dir_.get(), path_));
  for (const std::string& name : names) {
    if (!DomainOf(name).has_value()) continue;
    const auto domain = OpenDomain(name);
    if (!domain.ok()) continue;  // reported when someone asks for its contents
    const auto files = NamesIn(domain->get(), path_);
    if (!files.ok()) continue;
    for (const std::string& file : *files) {
      if (!file.starts_with(AtomicFile::kTempPrefix)) continue;
      if (unlinkat(domain->get(), file.c_str(), 0) == 0) ++leftovers_removed_;
    }
  }
  return OkStatus();
}

StatusOr<StateDirectory::Place> StateDirectory::PlaceOf(std::string_view domain,
                                                        std::string_view name) const {
  if (name.empty()) return InvalidArgument("only sessions with a name are kept on disk");
  if (name.size() > kMaxSessionNameBytes || domain.size() > kMaxSessionNameBytes) {
    return InvalidArgument("the session name ", Printable(name), " or its domain is longer than ",
                           kMaxSessionNameBytes, " bytes");
  }
  Place place;
  place.directory = StrCat("@", SafeFileName(domain));
  place.file = StrCat(SafeFileName(name), kSuffix);
  place.path = StrCat(place.directory, "/", place.file);
  return place;
}

StatusOr<FileDescriptor> StateDirectory::OpenDomain(const std::string& directory) const {
  return OpenOwnDirectory(dir_.get(), directory, StrCat(directory, " in the state directory"));
}

StatusOr<FileDescriptor> StateDirectory::CreateDomain(const std::string& directory) const {
  if (mkdirat(dir_.get(), directory.c_str(), 0700) == 0) {
    WEFT_RETURN_IF_ERROR(SyncDirectory(dir_.get(), directory));
  } else if (errno != EEXIST) {
    return ErrnoStatus(errno, StrCat("cannot create ", directory, " in the state directory"));
  }
  return OpenDomain(directory);
}

Status StateDirectory::Save(const SessionHead& head, const StateSource& source) {
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceOf(head.domain, head.name));
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor domain, CreateDomain(place.directory));
  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(domain.get(), place.file, place.path));
  const auto append = [&file](std::span<const std::byte> bytes) { return file->Append(bytes); };
  WEFT_RETURN_IF_ERROR(WriteSession(head, source, append));
  return file->Commit();
}

StatusOr<std::unique_ptr<SessionReader>> StateDirectory::Load(std::string_view domain,
                                                              std::string_view name) const {
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceOf(domain, name));
  const auto fd = OpenDomain(place.directory);
  if (!fd.ok()) return OrNotSaved(fd.status(), name);
  return LoadFrom(fd->get(), place, domain, name);
}

StatusOr<std::unique_ptr<SessionReader>> StateDirectory::LoadFrom(int domain_fd, const Place& place,
                                                                  std::string_view domain,
                                                                  std::string_view name) const {
  auto source = OpenFileSource(domain_fd, place.file, place.path);
  if (!source.ok()) return OrNotSaved(source.status(), name);
  auto reader = SessionReader::Open(*std::move(source));
  if (!reader.ok()) {
    return Annotate(reader.status(), "cannot read ", Printable(place.path, 300), ": ");
  }
  const SessionHead& head = (*reader)->head();
  if (head.domain != domain || head.name != name) {
    return FailedPrecondition(Printable(place.path, 300), " holds session ", Printable(head.name),
                              " of domain ", Printable(head.domain),
                              "; give the file back its own name");
  }
  return reader;
}

int64_t StateDirectory::FileBytes(std::string_view domain, std::string_view name) const {
  const auto place = PlaceOf(domain, name);
  if (!place.ok()) return 0;
  const auto fd = OpenDomain(place->directory);
  struct stat info {};
  if (!fd.ok() || fstatat(fd->get(), place->file.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return 0;
  }
  return static_cast<int64_t>(info.st_size);
}

Status StateDirectory::Remove(std::string_view domain, std::string_view name) {
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceOf(domain, name));
  const auto fd = OpenDomain(place.directory);
  if (!fd.ok()) return OrNotSaved(fd.status(), name);
  if (unlinkat(fd->get(), place.file.c_str(), 0) != 0) {
    return OrNotSaved(ErrnoStatus(errno, StrCat("cannot remove ", Printable(place.path, 300))),
                      name);
  }
  WEFT_RETURN_IF_ERROR(SyncDirectory(fd->get(), place.path));
  // Fails while the domain has other sessions.
  unlinkat(dir_.get(), place.directory.c_str(), AT_REMOVEDIR);
  return OkStatus();
}

SavedSession StateDirectory::Describe(int domain_fd, const Place& place, std::string_view domain,
                                      std::string_view name) const {
  SavedSession saved;
  saved.domain = domain;
  saved.name = name;
  struct stat info {};
  const bool is_there = fstatat(domain_fd, place.file.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  saved.file_bytes = is_there ? static_cast<int64_t>(info.st_size) : 0;
  // Told apart without opening it: there may be thousands.
  if (is_there && S_ISREG(info.st_mode) && info.st_size == 0) {
    saved.health = DataLoss("cannot read ", Printable(place.path, 300), ": it is empty");
    return saved;
  }
  const auto reader = LoadFrom(domain_fd, place, domain, name);
  saved.health = reader.status();
  if (!reader.ok()) return saved;
  saved.file_bytes = static_cast<int64_t>((*reader)->file_bytes());
  const SessionHead& head = (*reader)->head();
  saved.n_tokens = static_cast<int64_t>(head.tokens.size());
  saved.state_tokens = head.state_tokens;
  saved.created_us = head.created_us;
  saved.updated_us = head.updated_us;
  return saved;
}

StatusOr<std::vector<SavedSession>> StateDirectory::List(std::string_view domain) const {
  std::vector<SavedSession> sessions;
  const std::string directory = StrCat("@", SafeFileName(domain));
  const auto fd = OpenDomain(directory);
  if (fd.status().code() == StatusCode::kNotFound) return sessions;
  if (!fd.ok()) return fd.status();
  WEFT_ASSIGN_OR_RETURN(const auto files, NamesIn(fd->get(), directory));
  for (const std::string& file : files) {
    const auto name = SessionOf(file);
    const Place place{.directory = directory, .file = file, .path = StrCat(directory, "/", file)};
    if (name.has_value()) sessions.push_back(Describe(fd->get(), place, domain, *name));
  }
  std::sort(sessions.begin(), sessions.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return sessions;
}

StatusOr<std::vector<SavedSession>> StateDirectory::ListAll(
    std::vector<std::string>* strangers) const {
  std::vector<std::string> domains;
  WEFT_ASSIGN_OR_RETURN(const auto names, NamesIn(dir_.get(), path_));
  for (const std::string& name : names) {
    if (auto domain = DomainOf(name); domain.has_value()) domains.push_back(*std::move(domain));
  }
  std::sort(domains.begin(), domains.end());
  std::vector<SavedSession> all;
  for (const std::string& domain : domains) {
    auto sessions = List(domain);
    if (!sessions.ok()) {
      if (strangers != nullptr) strangers->emplace_back(Message(sessions.status()));
      continue;
    }
    all.insert(all.end(), std::make_move_iterator(sessions->begin()),
               std::make_move_iterator(sessions->end()));
  }
  return all;
}

}  // namespace weft
