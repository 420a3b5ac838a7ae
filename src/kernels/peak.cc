#include "kernels/peak.h"

#include <chrono>
#include <cstdint>
#include <cstring>

#include "kernels/peak_internal.h"

namespace weft {
namespace peak {
namespace {

int32_t RunScalar(int64_t n, int32_t seed) {
  int32_t sums[16] = {};
  int8_t a[16], b[16];
  for (int i = 0; i < 16; ++i) {
    a[i] = static_cast<int8_t>(seed + i);
    b[i] = static_cast<int8_t>(seed - i);
  }
  for (int64_t round = 0; round < n; ++round) {
    for (int i = 0; i < 16; ++i) sums[i] += a[i] * b[(i + round) & 15];
  }
  int32_t sum = 0;
  for (const int32_t s : sums) sum ^= s;
  return sum;
}

}  // namespace

Burst ScalarBurst() { return {RunScalar, 16}; }

}  // namespace peak

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// Keeps a result alive that nobody needs.
thread_local volatile int64_t sink;

peak::Burst BurstOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return peak::Avx512Burst();
  if (isa == Isa::kAvx2) return peak::Avx2Burst();
#elif defined(__aarch64__)
  if (isa == Isa::kI8mm) return peak::I8mmBurst();
  if (isa == Isa::kNeon) return peak::NeonBurst();
#endif
  return peak::ScalarBurst();
}

}  // namespace

double MeasureInt8MacsPerSecond(Isa isa, double seconds) {
  constexpr int64_t kRounds = 20000;
  const peak::Burst burst = BurstOf(isa);
  const auto begin = Clock::now();
  int64_t rounds = 0;
  int32_t value = 3;
  while (Seconds(begin) < seconds) {
    value = burst.run(kRounds, value | 1);
    rounds += kRounds;
  }
  const double elapsed = Seconds(begin);
  sink = value;
  return static_cast<double>(rounds) * static_cast<double>(burst.macs_per_round) / elapsed;
}

double MeasureReadBytesPerSecond(std::span<const std::byte> memory, double seconds) {
  constexpr size_t kBlock = size_t{1} << 20;
  const auto begin = Clock::now();
  double bytes = 0;
  uint64_t sums[8] = {};
  while (Seconds(begin) < seconds) {
    for (size_t at = 0; at + kBlock <= memory.size(); at += kBlock) {
      for (size_t i = 0; i < kBlock; i += 64) {
        uint64_t line[8];
        std::memcpy(line, memory.data() + at + i, sizeof(line));
        for (int k = 0; k < 8; ++k) sums[k] += line[k];
      }
      bytes += static_cast<double>(kBlock);
      if (Seconds(begin) >= seconds) break;
    }
  }
  const double elapsed = Seconds(begin);
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  sink = static_cast<int64_t>(sum);
  return bytes / elapsed;
}

}  // namespace weft
