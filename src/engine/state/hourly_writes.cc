#include "engine/state/hourly_writes.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/state/fields.h"
#include "xxhash.h"

namespace weft {
namespace {

constexpr std::array<char, 8> kRecordMagic = {'\x89', 'W', 'E', 'F', 'T', 'B', 'L', 'W'};
constexpr uint32_t kRecordVersion = 1;
constexpr int64_t kMinuteMicros = 60 * int64_t{1'000'000};
constexpr int64_t kMaxRecorded = std::numeric_limits<int64_t>::max() / 256;  // no sum overflows

}  // namespace

void HourlyWrites::Advance(int64_t now_us) {
  const int64_t minute = now_us / kMinuteMicros;
  const int64_t passed = std::clamp<int64_t>(minute - minute_, 0, std::ssize(by_age_));
  std::shift_right(by_age_.begin(), by_age_.end(), passed);
  std::fill_n(by_age_.begin(), passed, 0);
  minute_ = minute;
}

void HourlyWrites::Add(int64_t now_us, int64_t bytes) {
  Advance(now_us);
  by_age_[0] = std::min(by_age_[0] + bytes, kMaxRecorded);
}

int64_t HourlyWrites::Total(int64_t now_us) {
  Advance(now_us);
  return std::accumulate(by_age_.begin(), by_age_.end(), int64_t{0});
}

std::vector<std::byte> HourlyWrites::Record() const {
  FieldWriter out;
  for (const char letter : kRecordMagic) out.Put(letter);
  out.Put(kRecordVersion);
  out.Put(static_cast<uint32_t>(minute_));
  for (const int64_t bytes : by_age_) out.Put(bytes);
  out.Put(uint64_t{XXH3_64bits(out.bytes().data(), out.bytes().size())});
  static_assert(kRecordMagic.size() + 2 * sizeof(uint32_t) + sizeof(by_age_) + sizeof(uint64_t) ==
                kRecordBytes);
  return {out.bytes().begin(), out.bytes().end()};
}

std::optional<HourlyWrites> HourlyWrites::From(std::span<const std::byte> record) {
  if (record.size() != kRecordBytes ||
      std::memcmp(record.data(), kRecordMagic.data(), kRecordMagic.size()) != 0) {
    return std::nullopt;
  }
  FieldReader in(record.subspan(kRecordMagic.size()));
  if (in.Get<uint32_t>() != kRecordVersion) return std::nullopt;
  HourlyWrites writes;
  writes.minute_ = in.Get<uint32_t>();
  for (int64_t& bytes : writes.by_age_) {
    bytes = in.Get<int64_t>();
    if (bytes < 0 || bytes > kMaxRecorded) return std::nullopt;
  }
  const auto checked = record.first(kRecordBytes - sizeof(uint64_t));
  if (in.Get<uint64_t>() != XXH3_64bits(checked.data(), checked.size())) return std::nullopt;
  return writes;
}

}  // namespace weft
