// Session files from anywhere: reading one must end in a status, with memory bounded
// by the format's limits, and a file that was read must survive being written again.
//
// Checksums would stop nearly every mutation at the door. So the input is first read
// as it is, and then once more with all checksums along its sections made right.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/state/session_file.h"
#include "xxhash.h"

namespace weft {
namespace {

constexpr size_t kFileHeaderBytes = 24;
constexpr size_t kSectionHeaderBytes = 40;
constexpr size_t kStoredBytesAt = 24;
constexpr size_t kChecksumAt = 32;

void Require(bool condition) {
  if (!condition) std::abort();
}

// Makes every checksum right that can be found by walking the sections.
std::vector<std::byte> WithChecksums(std::vector<std::byte> bytes) {
  if (bytes.size() < kFileHeaderBytes) return bytes;
  const uint64_t header = XXH3_64bits(bytes.data(), kFileHeaderBytes - 8);
  std::memcpy(bytes.data() + kFileHeaderBytes - 8, &header, 8);
  size_t at = kFileHeaderBytes;
  while (bytes.size() - at >= kSectionHeaderBytes) {
    uint64_t stored = 0;
    std::memcpy(&stored, bytes.data() + at + kStoredBytesAt, 8);
    stored = std::min<uint64_t>(stored, bytes.size() - at - kSectionHeaderBytes);
    std::vector<std::byte> covered(bytes.begin() + static_cast<ptrdiff_t>(at),
                                   bytes.begin() + static_cast<ptrdiff_t>(at + kChecksumAt));
    const auto contents = bytes.begin() + static_cast<ptrdiff_t>(at + kSectionHeaderBytes);
    covered.insert(covered.end(), contents, contents + static_cast<ptrdiff_t>(stored));
    const uint64_t checksum = XXH3_64bits(covered.data(), covered.size());
    std::memcpy(bytes.data() + at + kChecksumAt, &checksum, 8);
    at += kSectionHeaderBytes + static_cast<size_t>(stored);
  }
  return bytes;
}

void ReadWhole(std::span<const std::byte> bytes) {
  const auto reader = SessionReader::Open(NewMemorySource(bytes));
  if (!reader.ok()) {
    Require(!reader.status().message().empty());
    return;
  }
  const SessionHead& head = (*reader)->head();
  std::vector<std::vector<std::byte>> parts;
  const auto take = [&](int, int64_t, std::span<const std::byte> part) {
    parts.emplace_back(part.begin(), part.end());
    return OkStatus();
  };
  Status state = (*reader)->ReadRows(take);
  if (state.ok()) state = (*reader)->ReadState(take);
  if (!state.ok()) {
    Require(state.code() == StatusCode::kDataLoss);
    return;
  }
  // Read, written and read again it is the same.
  std::vector<std::byte> again;
  size_t next = 0;
  const Status written = WriteSession(
      head,
      [&](int, int64_t, std::span<std::byte> out) {
        Require(next < parts.size() && parts[next].size() == out.size());
        std::ranges::copy(parts[next++], out.begin());
        return OkStatus();
      },
      [&](std::span<const std::byte> more) {
        again.insert(again.end(), more.begin(), more.end());
        return OkStatus();
      });
  Require(written.ok() && next == parts.size());
  const auto second = SessionReader::Open(NewMemorySource(again));
  Require(second.ok() && (*second)->head().tokens == head.tokens &&
          (*second)->head().name == head.name);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  weft::ReadWhole(bytes);
  weft::ReadWhole(weft::WithChecksums({bytes.begin(), bytes.end()}));
  return 0;
}
