#include "model/hub/net/kept_digest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "model/hub/names/digest.h"
#include "model/hub/net/download.h"

namespace weft::hub {
namespace {

constexpr size_t kMaxKeptBytes = 256;
constexpr size_t kPieceBytes = size_t{4} << 20;

// The line "HEX SIZE TIME" that is kept for a file with this digest. Empty if there is no file.
std::string LineFor(const std::string& path, const std::string& hex) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);
  if (error) return "";
  return StrCat(hex, " ", info.st_size, " ", changed.time_since_epoch().count(), "\n");
}

}  // namespace

std::string KeptDigestPath(const std::string& path) { return path + ".sha256"; }

void KeepDigest(const std::string& path, const std::string& hex) {
  const std::string line = LineFor(path, hex);
  const std::string kept = KeptDigestPath(path);
  if (!line.empty()) (void)ReplaceFile(StrCat(kept, "-", getpid()), kept, line);
}

StatusOr<std::string> DigestOfFile(const std::string& path, const CheckProgressFn& progress) {
  if (const auto kept = ReadFile(KeptDigestPath(path), kMaxKeptBytes); kept.ok()) {
    const std::string hex = kept->substr(0, kept->find(' '));
    if (IsHex(hex, 64) && *kept == LineFor(path, hex)) return hex;
  }
  const std::string before = LineFor(path, "");
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!fd.ok() || fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, StrCat("cannot read ", Printable(path, 300)));
  }
  Digest digest(DigestKind::kSha256, info.st_size);
  std::vector<std::byte> buffer(kPieceBytes);
  for (int64_t done = 0; done < info.st_size;) {
    const int64_t n_bytes = std::min<int64_t>(std::ssize(buffer), info.st_size - done);
    const std::span part = std::span(buffer).first(static_cast<size_t>(n_bytes));
    WEFT_RETURN_IF_ERROR(ReadAt(fd.get(), static_cast<uint64_t>(done), part, path));
    digest.Update(part);
    done += n_bytes;
    if (progress) WEFT_RETURN_IF_ERROR(progress(done, info.st_size));
  }
  std::string hex = digest.Finish();
  // Not if it was changed while it was read.
  if (before == LineFor(path, "")) KeepDigest(path, hex);
  return hex;
}

}  // namespace weft::hub
