#include "engine/state/block_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>

#include "base/files/file_io.h"
#include "engine/state/fields.h"
#include "xxhash.h"

namespace weft {
namespace {

constexpr std::array<char, 8> kBlockMagic = {'\x89', 'W', 'E', 'F', 'T', 'B', 'L', 'K'};
constexpr std::array<char, 8> kIndexMagic = {'\x89', 'W', 'E', 'F', 'T', 'B', 'L', 'I'};
constexpr uint32_t kVersion = 1;
constexpr char kIndexName[] = "index";
constexpr char kWritesName[] = "written";               // in the folder of all models
constexpr char kAllFolders[] = "the folder of blocks";  // in messages
constexpr size_t kFixedBytes = 16;                      // magic, version, bytes of the description
constexpr uint32_t kMaxBlockMetaBytes = 64 << 10;
constexpr uint32_t kMaxBlockTokens = 8192;
constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;
// File systems allocate 4 KiB pages; the directory entry and our own records take space too.
constexpr int64_t kDiskPage = 4096;
constexpr int64_t kBesideFile = 512;
constexpr size_t kPieceBytes = size_t{16} << 10;  // per piece of a payload

template <typename Range>
void PutRange(const Range& range, FieldWriter* out) {
  for (const auto value : range) out->Put(value);
}

void PutInfo(const BlockInfo& info, FieldWriter* out) {
  out->Put(static_cast<uint32_t>(info.kind));
  for (const Fingerprint& print : {info.key, info.parent}) {
    out->Put(print.low);
    out->Put(print.high);
  }
  out->Put(info.first_token);
  out->Put(info.groups);
  out->Put(static_cast<uint32_t>(info.session ? 1 : 0));
  out->Put(static_cast<uint32_t>(info.tokens.size()));
  PutRange(info.tokens, out);
}

bool GetInfo(FieldReader* in, BlockInfo* info) {
  const uint32_t kind = in->Get<uint32_t>();
  info->kind = static_cast<BlockInfo::Kind>(kind);
  for (Fingerprint* print : {&info->key, &info->parent}) {
    print->low = in->Get<uint64_t>();
    print->high = in->Get<uint64_t>();
  }
  info->first_token = in->Get<int64_t>();
  info->groups = in->Get<uint64_t>();
  info->session = in->Get<uint32_t>() != 0;
  const uint32_t n_tokens = in->Get<uint32_t>();
  if (!in->ok() || kind < 1 || kind > 2 || n_tokens > kMaxBlockTokens || info->first_token < 0) {
    return false;
  }
  info->tokens.resize(n_tokens);
  for (TokenId& token : info->tokens) token = in->Get<TokenId>();
  const auto key = info->kind == BlockInfo::Kind::kPage ? PageBlockKey : SlotBlockKey;
  return in->ok() && key(info->parent, info->tokens) == info->key;
}

uint64_t ChecksumOf(std::span<const std::byte> bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

// Magic, description and their checksum.
std::vector<std::byte> HeaderOf(const BlockInfo& info, std::string_view domain,
                                int64_t payload_bytes) {
  FieldWriter meta;
  PutInfo(info, &meta);
  meta.Put(payload_bytes);
  meta.PutText(domain);
  FieldWriter header;
  PutRange(kBlockMagic, &header);
  header.Put(kVersion);
  header.Put(static_cast<uint32_t>(meta.bytes().size()));
  PutRange(meta.bytes(), &header);
  header.Put(ChecksumOf(header.bytes()));
  return {header.bytes().begin(), header.bytes().end()};
}

struct Header {
  BlockInfo info;
  int64_t payload_bytes = 0;
  std::string domain;
  uint64_t bytes = 0;  // size of the index itself
  uint64_t checksum = 0;
};

Status NotABlock(std::string_view why) { return DataLoss("it is not a complete block: ", why); }

StatusOr<Header> ReadHeader(const ByteSource& source) {
  std::array<std::byte, kFixedBytes> fixed{};
  if (source.size() < fixed.size()) return NotABlock("it is too short");
  WEFT_RETURN_IF_ERROR(source.Read(0, fixed));
  if (std::memcmp(fixed.data(), kBlockMagic.data(), kBlockMagic.size()) != 0) {
    return NotABlock("it begins differently");
  }
  FieldReader start(std::span<const std::byte>(fixed).subspan(kBlockMagic.size()));
  const uint32_t version = start.Get<uint32_t>();
  const uint32_t meta_bytes = start.Get<uint32_t>();
  if (version != kVersion) return NotABlock("its version is unknown");
  Header header;
  header.bytes = fixed.size() + meta_bytes + sizeof(uint64_t);
  if (meta_bytes > kMaxBlockMetaBytes || header.bytes > source.size()) {
    return NotABlock("its description is cut off");
  }
  std::vector<std::byte> all(static_cast<size_t>(header.bytes));
  WEFT_RETURN_IF_ERROR(source.Read(0, all));
  const auto checked = std::span<const std::byte>(all).first(all.size() - sizeof(uint64_t));
  std::memcpy(&header.checksum, all.data() + checked.size(), sizeof(uint64_t));
  if (ChecksumOf(checked) != header.checksum) return NotABlock("its description is damaged");
  FieldReader in(checked.subspan(kFixedBytes));
  if (!GetInfo(&in, &header.info)) return NotABlock("its description is wrong");
  header.payload_bytes = in.Get<int64_t>();
  header.domain = in.GetText();
  const uint64_t rest = source.size() - header.bytes;
  if (!in.at_end() || header.payload_bytes < 0 ||
      rest != static_cast<uint64_t>(header.payload_bytes) + sizeof(uint64_t)) {
    return NotABlock("its size is wrong");
  }
  return header;
}

StatusOr<std::vector<std::byte>> ReadPayload(const ByteSource& source, const Header& header) {
  std::vector<std::byte> payload(static_cast<size_t>(header.payload_bytes));
  WEFT_RETURN_IF_ERROR(source.Read(header.bytes, payload));
  uint64_t checksum = 0;
  WEFT_RETURN_IF_ERROR(
      source.Read(header.bytes + payload.size(), std::as_writable_bytes(std::span(&checksum, 1))));
  if (ChecksumOf(payload, header.checksum) != checksum) return NotABlock("it fails its checksum");
  return payload;
}

int64_t OnDisk(int64_t file_bytes) {
  return (file_bytes + kDiskPage - 1) / kDiskPage * kDiskPage + kBesideFile;
}

struct FileSize {
  int64_t bytes = 0;
  int64_t changed_s = 0;
};

std::optional<FileSize> SizeOf(int folder_fd, const std::string& name) {
  struct stat info;
  if (fstatat(folder_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  return FileSize{static_cast<int64_t>(info.st_size), static_cast<int64_t>(info.st_mtime)};
}

// False also if nothing can be said about it.
bool IsNoFile(int folder_fd, const std::string& name) {
  struct stat info;
  if (fstatat(folder_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  return !S_ISREG(info.st_mode);
}

StatusOr<FileDescriptor> OpenFolder(int dir_fd, const std::string& name, const std::string& path) {
  if (mkdirat(dir_fd, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, StrCat("cannot create ", Printable(path, 300)));
  }
  return OpenOwnDirectory(dir_fd, name, path);
}

}  // namespace

StatusOr<std::unique_ptr<BlockFiles>> BlockFiles::Open(const std::string& path,
                                                       const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(FileDescriptor root, OpenFolder(AT_FDCWD, path, path));
  WEFT_ASSIGN_OR_RETURN(FileDescriptor own,
                        OpenFolder(root.get(), folder, StrCat(path, "/", folder)));
  return std::unique_ptr<BlockFiles>(new BlockFiles(folder, std::move(root), std::move(own)));
}

// --- listing ----------------------------------------------------------------------------

StatusOr<BlockFiles::Listing> BlockFiles::List() {
  Listing listing;
  WEFT_ASSIGN_OR_RETURN(const auto folders, NamesIn(root_.get(), kAllFolders));
  for (const std::string& name : folders) {
    if (name != folder_name_) ListForeign(name, &listing);
  }
  ListOwn(&listing);
  return listing;
}

void BlockFiles::ListForeign(const std::string& name, Listing* listing) const {
  const FileDescriptor fd(
      openat(root_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return;
  const auto files = NamesIn(fd.get(), name);
  if (!files.ok()) return;
  if (files->empty() || *files == std::vector<std::string>{kIndexName}) {
    unlinkat(fd.get(), kIndexName, 0);
    unlinkat(root_.get(), name.c_str(), AT_REMOVEDIR);
    return;
  }
  for (const std::string& file : *files) {
    const auto size = SizeOf(fd.get(), file);
    if (file == kIndexName || !size.has_value()) continue;
    listing->foreign.push_back({StrCat(name, "/", file), OnDisk(size->bytes), size->changed_s});
  }
}

void BlockFiles::ListOwn(Listing* listing) {
  std::map<std::string, BlockInfo> known;
  for (BlockInfo& info : ReadIndex()) known.emplace(info.key.ToHex(), std::move(info));
  const auto files = NamesIn(folder_.get(), folder_name_);
  if (!files.ok()) return;
  for (const std::string& file : *files) {
    const auto size = SizeOf(folder_.get(), file);
    if (file == kIndexName || !size.has_value()) continue;
    const auto found = known.find(file);
    if (found != known.end() && found->second.bytes == OnDisk(size->bytes)) {
      listing->own.push_back(std::move(found->second));
      continue;
    }
    if (size->bytes < std::ssize(kBlockMagic)) {
      listing->useless.push_back(StrCat(folder_name_, "/", file));
      continue;
    }
    ++files_opened_;
    const auto source = OpenFileSource(folder_.get(), file, PathOf(file));
    auto header = source.ok() ? ReadHeader(**source) : StatusOr<Header>(source.status());
    if (!header.ok() && header.status().code() != StatusCode::kDataLoss) {
      if (listing->n_unread++ == 0) listing->unread = header.status();
      continue;
    }
    if (!header.ok() || header->info.key.ToHex() != file) {
      listing->useless.push_back(StrCat(folder_name_, "/", file));
      continue;
    }
    header->info.bytes = OnDisk(size->bytes);
    header->info.used_s = size->changed_s;
    listing->own.push_back(std::move(header->info));
  }
}

std::vector<BlockInfo> BlockFiles::ReadIndex() const {
  const auto source = OpenFileSource(folder_.get(), kIndexName, PathOf(kIndexName));
  if (!source.ok()) return {};
  const uint64_t size = (*source)->size();
  if (size < kFixedBytes + sizeof(uint64_t) || size > kMaxIndexBytes) return {};
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  if (!(*source)->Read(0, bytes).ok()) return {};
  const auto checked = std::span<const std::byte>(bytes).first(bytes.size() - sizeof(uint64_t));
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + checked.size(), sizeof(checksum));
  if (ChecksumOf(checked) != checksum ||
      std::memcmp(bytes.data(), kIndexMagic.data(), kIndexMagic.size()) != 0) {
    return {};
  }
  FieldReader in(checked.subspan(kIndexMagic.size()));
  if (in.Get<uint32_t>() != kVersion) return {};
  const uint32_t n = in.Get<uint32_t>();
  if (n > size / sizeof(BlockInfo::key)) return {};
  std::vector<BlockInfo> infos(n);
  for (BlockInfo& info : infos) {
    if (!GetInfo(&in, &info)) return {};
    info.bytes = in.Get<int64_t>();
    info.used_s = in.Get<int64_t>();
    info.uses = in.Get<int64_t>();
  }
  return in.at_end() ? infos : std::vector<BlockInfo>();
}

Status BlockFiles::WriteIndex(const std::vector<BlockInfo>& blocks) const {
  FieldWriter out;
  PutRange(kIndexMagic, &out);
  out.Put(kVersion);
  out.Put(static_cast<uint32_t>(blocks.size()));
  for (const BlockInfo& info : blocks) {
    PutInfo(info, &out);
    out.Put(info.bytes);
    out.Put(info.used_s);
    out.Put(info.uses);
  }
  out.Put(ChecksumOf(out.bytes()));
  WEFT_ASSIGN_OR_RETURN(const auto file,
                        AtomicFile::Create(folder_.get(), kIndexName, PathOf(kIndexName)));
  WEFT_RETURN_IF_ERROR(file->Append(out.bytes()));
  return file->CommitLoosely();
}

// --- the record of writes ---------------------------------------------------------------

HourlyWrites BlockFiles::RecordedWrites() const {
  const auto source = OpenFileSource(root_.get(), kWritesName, kWritesName);
  if (!source.ok() || (*source)->size() != HourlyWrites::kRecordBytes) return {};
  std::array<std::byte, HourlyWrites::kRecordBytes> record{};
  if (!(*source)->Read(0, record).ok()) return {};
  return HourlyWrites::From(record).value_or(HourlyWrites());
}

// In place: that is a single sector, and no process ends in the middle of it.
Status BlockFiles::RecordWrites(const HourlyWrites& writes) const {
  const FileDescriptor fd(openat(root_.get(), kWritesName,
                                 O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  const auto record = writes.Record();
  const ssize_t n = fd.ok() ? pwrite(fd.get(), record.data(), record.size(), 0) : -1;
  if (n == std::ssize(record)) return OkStatus();
  return ErrnoStatus(n < 0 ? errno : ENOSPC,
                     StrCat("cannot record how much was written in ", kAllFolders));
}

// --- one block --------------------------------------------------------------------------

int64_t BlockFiles::BytesOf(const BlockInfo& info, std::string_view domain, int64_t payload_bytes) {
  const auto header = static_cast<int64_t>(HeaderOf(info, domain, payload_bytes).size());
  return OnDisk(header + payload_bytes + static_cast<int64_t>(sizeof(uint64_t)));
}

Status BlockFiles::Write(const BlockInfo& info, std::string_view domain,
                         std::span<const std::byte> payload, FunctionRef<void()> meanwhile) const {
  const std::string name = info.key.ToHex();
  const auto header = HeaderOf(info, domain, static_cast<int64_t>(payload.size()));
  uint64_t header_checksum = 0;
  std::memcpy(&header_checksum, header.data() + header.size() - sizeof(uint64_t), sizeof(uint64_t));
  const uint64_t checksum = ChecksumOf(payload, header_checksum);
  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(folder_.get(), name, PathOf(name)));
  WEFT_RETURN_IF_ERROR(file->Append(header));
  for (auto left = payload; !left.empty();) {
    const auto piece = left.first(std::min(left.size(), kPieceBytes));
    WEFT_RETURN_IF_ERROR(file->Append(piece));
    left = left.subspan(piece.size());
    meanwhile();
  }
  WEFT_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(&checksum, 1))));
  return file->CommitLoosely();
}

StatusOr<std::vector<std::byte>> BlockFiles::Read(const BlockInfo& info, std::string_view domain,
                                                  int64_t payload_bytes) const {
  const std::string name = info.key.ToHex();
  const auto source = OpenFileSource(folder_.get(), name, PathOf(name));
  if (!source.ok()) {
    const bool is_lost = IsNoFile(folder_.get(), name);
    return is_lost ? DataLoss(Message(source.status())) : source.status();
  }
  WEFT_ASSIGN_OR_RETURN(const Header header, ReadHeader(**source));
  const BlockInfo& found = header.info;
  if (!(found.key == info.key) || !(found.parent == info.parent) || found.kind != info.kind ||
      found.first_token != info.first_token || found.tokens != info.tokens ||
      found.groups != info.groups || header.domain != domain ||
      header.payload_bytes != payload_bytes) {
    return NotABlock("it is a different block than its name says");
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<std::byte> payload, ReadPayload(**source, header));
  // Records the last use, in case another model is being served by then.
  (void)utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return payload;
}

StatusOr<BlockFiles::Parsed> BlockFiles::Parse(std::string_view bytes, std::string_view domain) {
  const auto source = NewMemorySource(std::as_bytes(std::span(bytes)));
  WEFT_ASSIGN_OR_RETURN(Header header, ReadHeader(*source));
  if (header.domain != domain) return NotABlock("it is another tenant's");
  WEFT_ASSIGN_OR_RETURN(std::vector<std::byte> payload, ReadPayload(*source, header));
  return Parsed{std::move(header.info), std::move(payload)};
}

StatusOr<std::string> BlockFiles::ReadFile(const Fingerprint& key) const {
  const std::string name = key.ToHex();
  WEFT_ASSIGN_OR_RETURN(const auto source, OpenFileSource(folder_.get(), name, PathOf(name)));
  std::string bytes(static_cast<size_t>(source->size()), '\0');
  WEFT_RETURN_IF_ERROR(source->Read(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

std::string BlockFiles::PathOf(const std::string& file) const {
  return StrCat("block ", folder_name_, "/", file);
}

void BlockFiles::Remove(const std::string& path) const { unlinkat(root_.get(), path.c_str(), 0); }

}  // namespace weft
