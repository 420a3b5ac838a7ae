#include "zip/zip_writer.h"

#include <zlib.h>

#include <limits>
#include <utility>

namespace weft {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kEndOfDirectory = 0x06054b50;
constexpr uint16_t kVersion = 20;  // the first version with deflate
constexpr uint16_t kDeflate = 8;
constexpr uint16_t kMidnight = 0;
constexpr uint16_t kNewYear1980 = 1 << 5 | 1;  // the first date that zip can represent
// Sizes and offsets are 32-bit numbers; the directory must fit too.
constexpr uint64_t kMaxArchiveBytes = std::numeric_limits<uint32_t>::max() - (1 << 20);

void Put16(uint16_t value, std::string* out) {
  out->push_back(static_cast<char>(value));
  out->push_back(static_cast<char>(value >> 8));
}

void Put32(uint32_t value, std::string* out) {
  Put16(static_cast<uint16_t>(value), out);
  Put16(static_cast<uint16_t>(value >> 16), out);
}

// Without zlib's own header and trailer, as zip requires.
StatusOr<std::string> RawDeflate(std::string_view content) {
  constexpr int kRawWindowBits = -15;
  constexpr int kMemoryLevel = 8;
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kRawWindowBits, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return ResourceExhausted("no memory to compress with");
  }
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return Internal("compressing ended with zlib's code ", result);
  return out;
}

}  // namespace

Status ZipWriter::Add(std::string_view name, std::string_view content) {
  if (content.size() > kMaxArchiveBytes) {
    return ResourceExhausted("a file of ", content.size(), " bytes is too large for a zip archive");
  }
  WEFT_ASSIGN_OR_RETURN(const std::string deflated, RawDeflate(content));
  if (archive_.size() + deflated.size() > kMaxArchiveBytes) {
    return ResourceExhausted("the zip archive would be larger than 4 GiB");
  }
  std::string common;  // the part common to both headers
  Put16(kVersion, &common);
  Put16(0, &common);  // no flags
  Put16(kDeflate, &common);
  Put16(kMidnight, &common);
  Put16(kNewYear1980, &common);
  Put32(static_cast<uint32_t>(
            crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size())),
        &common);
  Put32(static_cast<uint32_t>(deflated.size()), &common);
  Put32(static_cast<uint32_t>(content.size()), &common);
  Put16(static_cast<uint16_t>(name.size()), &common);
  Put16(0, &common);  // no extra field

  Put32(kDirectoryEntry, &directory_);
  Put16(kVersion, &directory_);
  directory_ += common;
  Put16(0, &directory_);  // no comment
  Put16(0, &directory_);  // first disk
  Put16(0, &directory_);  // internal attributes
  Put32(0, &directory_);  // external attributes
  Put32(static_cast<uint32_t>(archive_.size()), &directory_);
  directory_ += name;

  Put32(kLocalHeader, &archive_);
  archive_ += common;
  archive_ += name;
  archive_ += deflated;
  ++n_files_;
  return OkStatus();
}

std::string ZipWriter::Finish() {
  const auto directory_at = static_cast<uint32_t>(archive_.size());
  archive_ += directory_;
  Put32(kEndOfDirectory, &archive_);
  Put16(0, &archive_);  // this disk
  Put16(0, &archive_);  // the directory's disk
  Put16(n_files_, &archive_);
  Put16(n_files_, &archive_);
  Put32(static_cast<uint32_t>(directory_.size()), &archive_);
  Put32(directory_at, &archive_);
  Put16(0, &archive_);  // no comment
  return std::move(archive_);
}

}  // namespace weft
