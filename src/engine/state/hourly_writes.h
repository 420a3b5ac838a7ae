// Bytes written in the last hour, minute by minute. By the clock on the wall, so that the count can
// be recorded and continued by the next process.
//
// Threads: one at a time.
#ifndef WEFT_ENGINE_STATE_HOURLY_WRITES_H_
#define WEFT_ENGINE_STATE_HOURLY_WRITES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace weft {

class HourlyWrites {
 public:
  // Times are microseconds since 1970. A clock that was set back counts as standing still.
  void Add(int64_t now_us, int64_t bytes);
  // Bytes written in the last hour, and up to a minute before.
  int64_t Total(int64_t now_us);

  // One sector of a disk. Nothing if the bytes are not an intact record.
  static constexpr size_t kRecordBytes = 512;
  std::vector<std::byte> Record() const;
  static std::optional<HourlyWrites> From(std::span<const std::byte> record);

 private:
  void Advance(int64_t now_us);

  int64_t minute_ = 0;                   // since 1970: the one that is counted in by_age_[0]
  std::array<int64_t, 61> by_age_ = {};  // 60 whole minutes and the present one
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_HOURLY_WRITES_H_
