// Reads members of a zip archive, such as a Python wheel: stored or deflated, below 4 GiB, not
// encrypted. The archive is not trusted: every number is checked before use.
//
// One thread at a time.
#ifndef WEFT_HUB_NET_ZIP_READER_H_
#define WEFT_HUB_NET_ZIP_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/status.h"

namespace weft::hub {

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
  static StatusOr<ZipReader> Open(const std::string& path);

  const std::vector<ZipMember>& members() const { return members_; }
  // Passes the member's bytes to `take` in pieces and verifies them; an error from `take` ends it.
  Status Read(const ZipMember& member,
              const std::function<Status(std::span<const std::byte>)>& take) const;

 private:
  explicit ZipReader(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  Status ReadDirectory();
  Status Damaged() const;
  template <typename T>
  bool ReadNumber(uint64_t at, T* value) const;

  std::unique_ptr<MappedFile> file_;
  std::vector<ZipMember> members_;
};

}  // namespace weft::hub

#endif  // WEFT_HUB_NET_ZIP_READER_H_
