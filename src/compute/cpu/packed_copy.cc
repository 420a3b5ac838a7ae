#include "compute/cpu/packed_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/files/file_io.h"
#include "base/log.h"
#include "base/system.h"
#include "compute/kernels/matmul/matmul.h"
#include "xxhash.h"

namespace weft::cpu {
namespace {

constexpr std::string_view kSuffix = ".packed";
constexpr char kLockName[] = "lock";
constexpr char kMagic[8] = {'W', 'E', 'F', 'T', 'P', 'A', 'C', 'K'};
// The body is hashed in pieces of this size.
constexpr size_t kHashedBytes = size_t{4} << 20;
// The body's offset is a multiple of this.
constexpr size_t kAlignment = 4096;
// Two cores pack about half a gigabyte per second: what a smaller file would gain is not worth a
// second copy on the disk, unless somebody asks for it.
constexpr size_t kMinDefaultBytes = size_t{256} << 20;

// In the machine's byte order, because copies never leave the machine.
struct Head {
  char magic[8] = {};
  uint64_t form = 0;  // kPackedForm
  uint64_t layout = 0;
  uint64_t body_bytes = 0;
  uint64_t hash = 0;  // of the fields above and of the table of hashes
};

size_t PieceCount(uint64_t body_bytes) {
  return static_cast<size_t>((body_bytes + kHashedBytes - 1) / kHashedBytes);
}

size_t BodyOffset(uint64_t body_bytes) {
  const size_t end = sizeof(Head) + PieceCount(body_bytes) * sizeof(uint64_t);
  return (end + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t HashOf(const Head& head, std::span<const uint64_t> table) {
  const uint64_t of_table = XXH3_64bits(table.data(), table.size_bytes());
  return XXH3_64bits_withSeed(&head, offsetof(Head, hash), of_table);
}

// Empty for a model that is not in a file.
std::string NameOfCopy(const ModelFile& file) {
  std::string of = file.stamp();
  if (of.empty()) return "";
  of += file.spec_text();
  const XXH128_hash_t hash = XXH3_128bits_withSeed(of.data(), of.size(), kPackedForm);
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
  return StrCat(text, kSuffix);
}

// Hashes a body that arrives in parts of any size, one piece of kHashedBytes at a time.
class PieceHasher {
 public:
  PieceHasher() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
  ~PieceHasher() { XXH3_freeState(state_); }
  PieceHasher(const PieceHasher&) = delete;
  PieceHasher& operator=(const PieceHasher&) = delete;

  void Add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kHashedBytes - n_));
      XXH3_64bits_update(state_, part.data(), part.size());
      n_ += part.size();
      bytes = bytes.subspan(part.size());
      if (n_ == kHashedBytes) EndPiece();
    }
  }
  std::vector<uint64_t> Finish() {
    if (n_ > 0) EndPiece();
    return std::move(table_);
  }

 private:
  void EndPiece() {
    table_.push_back(XXH3_64bits_digest(state_));
    XXH3_64bits_reset(state_);
    n_ = 0;
  }

  XXH3_state_t* const state_;
  size_t n_ = 0;  // bytes of the current piece
  std::vector<uint64_t> table_;
};

// The folder may be one that others use, too: only what is named as Weft names it is touched.
bool IsCopy(std::string_view name) {
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == name.npos;
}
bool IsUnfinished(std::string_view name) {
  if (!name.starts_with(AtomicFile::kTempPrefix)) return false;
  name.remove_prefix(std::string_view(AtomicFile::kTempPrefix).size());
  const size_t dash = name.find('-');
  return dash != name.npos && dash > 0 && dash + 1 < name.size() &&
         name.find_first_not_of("0123456789") == dash &&
         name.find_first_not_of("0123456789", dash + 1) == name.npos;
}

// Removes a file, and returns its bytes: 0 if it is gone already.
StatusOr<int64_t> RemoveFile(int dir_fd, const std::string& name, const std::string& dir) {
  struct stat info;
  if (fstatat(dir_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      unlinkat(dir_fd, name.c_str(), 0) == 0) {
    return static_cast<int64_t>(info.st_size);
  }
  if (errno == ENOENT) return 0;
  return ErrnoStatus(errno, StrCat("cannot remove a packed copy in ", Printable(dir, 300)));
}

// A copy in `dir`, the time it was last used, and its size.
struct CopyInfo {
  std::string name;
  timespec used;
  int64_t bytes;
};

StatusOr<std::vector<CopyInfo>> CopiesIn(int dir_fd, const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(dir_fd, dir));
  std::vector<CopyInfo> copies;
  for (const std::string& name : names) {
    struct stat info;
    if (!IsCopy(name) || fstatat(dir_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode)) continue;
    copies.push_back({name, AccessedAt(info), static_cast<int64_t>(info.st_size)});
  }
  std::sort(copies.begin(), copies.end(), [](const CopyInfo& a, const CopyInfo& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  return copies;
}

StatusOr<FileDescriptor> OpenFolder(const std::string& dir) {
  WEFT_RETURN_IF_ERROR(CreateDirectories(dir));
  FileDescriptor fd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return ErrnoStatus(errno, StrCat("cannot open ", Printable(dir, 300)));
  return fd;
}

// Removes temporary files of writers that died, and returns their bytes.
int64_t RemoveUnfinished(int dir_fd, const std::string& dir) {
  auto names = NamesIn(dir_fd, dir);
  if (!names.ok() || std::ranges::none_of(*names, IsUnfinished)) return 0;
  // While another program has the lock, it is writing its own.
  const auto lock = TryLock(dir_fd, kLockName, dir);
  if (!lock.ok() || !lock->ok()) return 0;
  // Its file may have got its name before the lock was taken.
  names = NamesIn(dir_fd, dir);
  if (!names.ok()) return 0;
  int64_t freed = 0;
  for (const std::string& name : *names) {
    if (!IsUnfinished(name)) continue;
    freed += RemoveFile(dir_fd, name, dir).value_or(0);
  }
  return freed;
}

}  // namespace

StatusOr<std::unique_ptr<PackedCopy>> PackedCopy::Open(const std::string& path, ThreadPool* pool) {
  std::unique_ptr<PackedCopy> copy(new PackedCopy);
  WEFT_ASSIGN_OR_RETURN(copy->file_, MappedFile::Open(path));
  WEFT_RETURN_IF_ERROR(copy->Parse(path, pool));
  WEFT_RETURN_IF_ERROR(copy->file_->CheckUnchanged());
  return copy;
}

Status PackedCopy::Parse(const std::string& path, ThreadPool* pool) {
  const auto damaged = [&] { return DataLoss(Printable(path, 300), " is damaged"); };
  const std::span<const std::byte> bytes = file_->bytes();
  // Some file systems have huge pages, too.
  PreferHugePages(const_cast<std::byte*>(bytes.data()), bytes.size());
  Head head;
  if (bytes.size() < sizeof(head)) return damaged();
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0 || head.form != kPackedForm) {
    return damaged();
  }
  if (head.body_bytes > bytes.size() ||
      bytes.size() - head.body_bytes != BodyOffset(head.body_bytes)) {
    return damaged();
  }
  std::vector<uint64_t> table(PieceCount(head.body_bytes));
  std::memcpy(table.data(), bytes.data() + sizeof(head), table.size() * sizeof(uint64_t));
  if (HashOf(head, table) != head.hash) return damaged();
  layout_ = head.layout;
  body_ = bytes.subspan(BodyOffset(head.body_bytes));
  // Also maps the pages, so that computing need not wait for them.
  file_->WillNeed(body_);
  std::atomic<bool> is_whole{true};
  pool->ParallelFor(static_cast<int64_t>(table.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto rest = body_.subspan(i * kHashedBytes);
      const size_t n = std::min(rest.size(), kHashedBytes);
      if (XXH3_64bits(rest.data(), n) != table[i]) is_whole = false;
    }
  });
  return is_whole ? OkStatus() : damaged();
}

StatusOr<PackedCopies> PackedCopies::Open(const PackedCopyOptions& options, const ModelFile& file) {
  PackedCopies copies;
  std::string name = NameOfCopy(file);
  if (options.dir.empty() || name.empty()) return copies;
  if (options.is_default && file.file_bytes() < kMinDefaultBytes) return copies;
  copies.options_ = options;
  auto folder = OpenFolder(options.dir);
  if (!folder.ok() && options.is_default) {
    LogLine(StrCat("no packed copy of the weights is kept for later starts: ",
                   Message(folder.status()), "; choose a folder with --packed-cache, or none"));
    return copies;
  }
  WEFT_RETURN_IF_ERROR(folder.status());
  copies.dir_ = *std::move(folder);
  copies.name_ = std::move(name);
  RemoveUnfinished(copies.dir_.get(), options.dir);
  return copies;
}

std::string PackedCopies::path() const { return StrCat(options_.dir, "/", name_); }

std::unique_ptr<PackedCopy> PackedCopies::Find(ThreadPool* pool) const {
  if (name_.empty()) return nullptr;
  // Sets the access time, not the modification time: a copy in use must not seem to change.
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW},
                             {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  utimensat(dir_.get(), name_.c_str(), times, AT_SYMLINK_NOFOLLOW);
  auto copy = PackedCopy::Open(path(), pool);
  if (copy.ok()) return *std::move(copy);
  if (copy.status().code() == StatusCode::kNotFound) return nullptr;
  LogLine(StrCat("the model is packed anew: ", Message(copy.status())));
  // A copy that merely cannot be opened now may still be good for others.
  if (copy.status().code() == StatusCode::kDataLoss) unlinkat(dir_.get(), name_.c_str(), 0);
  return nullptr;
}

void PackedCopies::Write(uint64_t layout, std::span<const std::span<const std::byte>> tiles,
                         const Progress& progress) const {
  if (name_.empty()) return;
  uint64_t bytes = 0;
  for (const auto& part : tiles) bytes += part.size();
  const Status status = TryToWrite(layout, tiles, bytes, progress);
  const std::string what = StrCat("a packed copy of the weights, ", HumanBytes(bytes), ",");
  const std::string folder = Printable(options_.dir, 300);
  if (status.ok()) {
    LogLine(StrCat(what, " was written to ", folder,
                   ": later starts are faster; --packed-cache none keeps none"));
  } else {
    LogLine(StrCat(what, " was not written to ", folder, ": ", Message(status)));
  }
}

Status PackedCopies::TryToWrite(uint64_t layout, std::span<const std::span<const std::byte>> tiles,
                                uint64_t body_bytes, const Progress& progress) const {
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor lock, TryLock(dir_.get(), kLockName, options_.dir));
  if (!lock.ok()) return FailedPrecondition("another process is writing one");
  const size_t offset = BodyOffset(body_bytes);
  WEFT_RETURN_IF_ERROR(MakeRoom(static_cast<int64_t>(body_bytes + offset)));

  PieceHasher hasher;
  for (const auto& part : tiles) hasher.Add(part);
  const std::vector<uint64_t> table = hasher.Finish();
  Head head{.form = kPackedForm, .layout = layout, .body_bytes = body_bytes};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  head.hash = HashOf(head, table);
  std::vector<std::byte> front(offset);
  std::memcpy(front.data(), &head, sizeof(head));
  std::memcpy(front.data() + sizeof(head), table.data(), table.size() * sizeof(uint64_t));

  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(dir_.get(), name_, path()));
  // In memory, the copy spares the next start the disk, but not at the price of what others cached.
  file->WriteBehind(/*stays_cached=*/FreeHostMemoryBytes() / 2 >= static_cast<int64_t>(body_bytes));
  WEFT_RETURN_IF_ERROR(file->Append(front));
  uint64_t done = 0;
  for (const auto& part : tiles) {
    WEFT_RETURN_IF_ERROR(file->Append(part));
    done += part.size();
    if (progress) progress(static_cast<double>(done) / static_cast<double>(body_bytes));
  }
  return file->CommitLoosely();
}

Status PackedCopies::MakeRoom(int64_t bytes) const {
  if (bytes > options_.max_bytes) {
    return ResourceExhausted("copies may take ",
                             HumanBytes(static_cast<uint64_t>(options_.max_bytes)),
                             " in all, see --packed-cache-limit");
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<CopyInfo> copies, CopiesIn(dir_.get(), options_.dir));
  int64_t excess = bytes - options_.max_bytes, freed = 0;
  for (const CopyInfo& copy : copies) excess += copy.bytes;
  std::vector<std::string> victims;
  for (const CopyInfo& copy : copies) {  // least recently used first
    if (freed >= excess) break;
    victims.push_back(copy.name);
    freed += copy.bytes;
  }
  WEFT_ASSIGN_OR_RETURN(int64_t free_bytes, FreeDiskBytes(options_.dir));
  free_bytes += freed;
  if (free_bytes / 2 < bytes) {
    return ResourceExhausted("the disk has ", HumanBytes(static_cast<uint64_t>(free_bytes)),
                             " free, and half of that is to stay so");
  }
  for (const std::string& victim : victims) unlinkat(dir_.get(), victim.c_str(), 0);
  return OkStatus();
}

int64_t PackedCopyBytes(const std::string& dir, const ModelFile& file) {
  struct stat info;
  const std::string path = StrCat(dir, "/", NameOfCopy(file));
  const bool is_there = stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  return is_there ? static_cast<int64_t>(info.st_size) : 0;
}

StatusOr<int64_t> RemovePackedCopy(const std::string& dir, const ModelFile& file) {
  if (PackedCopyBytes(dir, file) == 0) return 0;
  const FileDescriptor folder(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return RemoveFile(folder.get(), NameOfCopy(file), dir);
}

StatusOr<int64_t> RemovePackedCopies(const std::string& dir) {
  const FileDescriptor folder(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok() && errno == ENOENT) return 0;
  if (!folder.ok()) return ErrnoStatus(errno, StrCat("cannot open ", Printable(dir, 300)));
  int64_t freed = 0;
  WEFT_ASSIGN_OR_RETURN(const std::vector<CopyInfo> copies, CopiesIn(folder.get(), dir));
  for (const CopyInfo& copy : copies) {
    WEFT_ASSIGN_OR_RETURN(const int64_t bytes, RemoveFile(folder.get(), copy.name, dir));
    freed += bytes;
  }
  return freed + RemoveUnfinished(folder.get(), dir);
}

}  // namespace weft::cpu
