// Reads members of a zip archive, such as a Python wheel or a file of torch.save: stored or
// deflated, below 4 GiB, not encrypted. The archive is not trusted: every number is checked before
// use.
//
// One thread at a time.
#ifndef WEFT_ZIP_ZIP_READER_H_
#define WEFT_ZIP_ZIP_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace weft {

struct ZipMember {
  std::string name;
  int method = 0;  // 0: stored, 8: deflated
  uint32_t crc = 0;
  uint64_t packed_bytes = 0;
  uint64_t n_bytes = 0;
  uint64_t header_at = 0;  // offset of its local header
};

class ZipReader {
 public:
  // `archive` must outlive the reader. Errors do not name the archive; the caller adds that.
  static StatusOr<ZipReader> Open(std::span<const std::byte> archive);

  const std::vector<ZipMember>& members() const { return members_; }
  // Passes the member's bytes to `take` in pieces and verifies them; an error from `take` ends it.
  Status Read(const ZipMember& member,
              const std::function<Status(std::span<const std::byte>)>& take) const;
  // The member's bytes in the archive, not verified; an error if they are compressed.
  StatusOr<std::span<const std::byte>> View(const ZipMember& member) const;

 private:
  explicit ZipReader(std::span<const std::byte> archive) : archive_(archive) {}
  Status ReadDirectory();
  // Its bytes as they are in the archive.
  StatusOr<std::span<const std::byte>> Packed(const ZipMember& member) const;
  template <typename T>
  bool ReadNumber(uint64_t at, T* value) const;

  std::span<const std::byte> archive_;
  std::vector<ZipMember> members_;
};

}  // namespace weft

#endif  // WEFT_ZIP_ZIP_READER_H_
