#include "zip/zip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/strings.h"

namespace weft {
namespace {

constexpr uint32_t kEndMark = 0x06054b50;
constexpr uint32_t kEntryMark = 0x02014b50;
constexpr uint32_t kLocalMark = 0x04034b50;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEntryBytes = 46;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kMaxComment = 65535;
constexpr int kStored = 0;
constexpr int kDeflated = 8;
constexpr size_t kPiece = size_t{1} << 20;

struct EndInflate {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};

Status Damaged() { return DataLoss("it is not a complete zip archive"); }

}  // namespace

// Little-endian, like all machines this program supports.
template <typename T>
bool ZipReader::ReadNumber(uint64_t at, T* value) const {
  if (at > archive_.size() || archive_.size() - at < sizeof(T)) return false;
  std::memcpy(value, archive_.data() + at, sizeof(T));
  return true;
}

StatusOr<ZipReader> ZipReader::Open(std::span<const std::byte> archive) {
  ZipReader reader(archive);
  WEFT_RETURN_IF_ERROR(reader.ReadDirectory());
  return reader;
}

Status ZipReader::ReadDirectory() {
  const uint64_t size = archive_.size();
  if (size < kEndBytes) return Damaged();
  uint64_t end = size - kEndBytes;
  const uint64_t lowest = end > kMaxComment ? end - kMaxComment : 0;
  uint32_t mark = 0;
  while (ReadNumber(end, &mark) && mark != kEndMark && end > lowest) --end;
  if (mark != kEndMark) return Damaged();
  uint16_t count = 0;
  uint32_t at32 = 0;
  if (!ReadNumber(end + 10, &count) || !ReadNumber(end + 16, &at32)) return Damaged();
  uint64_t at = at32;
  for (int i = 0; i < count; ++i) {
    uint16_t flags, method, name_bytes, extra_bytes, comment_bytes;
    uint32_t crc, packed, unpacked, header_at;
    if (!ReadNumber(at, &mark) || mark != kEntryMark || !ReadNumber(at + 8, &flags) ||
        !ReadNumber(at + 10, &method) || !ReadNumber(at + 16, &crc) ||
        !ReadNumber(at + 20, &packed) || !ReadNumber(at + 24, &unpacked) ||
        !ReadNumber(at + 28, &name_bytes) || !ReadNumber(at + 30, &extra_bytes) ||
        !ReadNumber(at + 32, &comment_bytes) || !ReadNumber(at + 42, &header_at) ||
        size - at < kEntryBytes + name_bytes) {
      return Damaged();
    }
    if ((flags & 1) == 0) {
      const auto* const name = reinterpret_cast<const char*>(archive_.data()) + at;
      members_.push_back({.name = std::string(name + kEntryBytes, name_bytes),
                          .method = method,
                          .crc = crc,
                          .packed_bytes = packed,
                          .n_bytes = unpacked,
                          .header_at = header_at});
    }
    at += kEntryBytes + name_bytes + extra_bytes + comment_bytes;
  }
  return OkStatus();
}

StatusOr<std::span<const std::byte>> ZipReader::Packed(const ZipMember& member) const {
  uint32_t mark = 0;
  uint16_t name_bytes, extra_bytes;
  if (!ReadNumber(member.header_at, &mark) || mark != kLocalMark ||
      !ReadNumber(member.header_at + 26, &name_bytes) ||
      !ReadNumber(member.header_at + 28, &extra_bytes)) {
    return Damaged();
  }
  const uint64_t begin = member.header_at + kLocalBytes + name_bytes + extra_bytes;
  if (begin > archive_.size() || archive_.size() - begin < member.packed_bytes) return Damaged();
  return archive_.subspan(begin, member.packed_bytes);
}

StatusOr<std::span<const std::byte>> ZipReader::View(const ZipMember& member) const {
  if (member.method != kStored) {
    return Unimplemented(Printable(member.name, 200), " is compressed");
  }
  if (member.packed_bytes != member.n_bytes) return Damaged();
  return Packed(member);
}

Status ZipReader::Read(const ZipMember& member,
                       const std::function<Status(std::span<const std::byte>)>& take) const {
  WEFT_ASSIGN_OR_RETURN(std::span<const std::byte> packed, Packed(member));
  uint64_t n_bytes = 0;
  uLong crc = crc32(0, nullptr, 0);
  const auto give = [&](std::span<const std::byte> piece) -> Status {
    n_bytes += piece.size();
    if (n_bytes > member.n_bytes) return Damaged();
    crc = crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
    return take(piece);
  };
  if (member.method == kStored) {
    for (; !packed.empty(); packed = packed.subspan(std::min(kPiece, packed.size()))) {
      WEFT_RETURN_IF_ERROR(give(packed.first(std::min(kPiece, packed.size()))));
    }
  } else if (member.method == kDeflated) {
    z_stream stream = {};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return ResourceExhausted("out of memory");
    const std::unique_ptr<z_stream, EndInflate> end(&stream);
    std::vector<std::byte> buffer(kPiece);
    for (int code = Z_OK; code != Z_STREAM_END;) {
      if (stream.avail_in == 0) {
        const std::span piece = packed.first(std::min(kPiece, packed.size()));
        packed = packed.subspan(piece.size());
        stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
        stream.avail_in = static_cast<uInt>(piece.size());
      }
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = static_cast<uInt>(buffer.size());
      code = inflate(&stream, Z_NO_FLUSH);
      if (code != Z_OK && code != Z_STREAM_END) return Damaged();
      WEFT_RETURN_IF_ERROR(give(std::span(buffer).first(buffer.size() - stream.avail_out)));
    }
  } else {
    return Unimplemented(Printable(member.name, 200), " is compressed with an unsupported method");
  }
  if (n_bytes != member.n_bytes || crc != member.crc) return Damaged();
  return OkStatus();
}

}  // namespace weft
