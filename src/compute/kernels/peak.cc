#include "compute/kernels/peak.h"

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "compute/kernels/peak_internal.h"

namespace weft {
namespace peak {
namespace {

int32_t RunInt8(int64_t n, int32_t seed) {
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

int32_t RunFloats(int64_t n, int32_t seed) {
  float sums[16] = {};
  const float a = 1 + static_cast<float>(seed & 63) / 1024, b = static_cast<float>(seed & 7);
  for (int64_t round = 0; round < n; ++round) {
    for (float& sum : sums) sum = sum * a + b;
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  return std::bit_cast<int32_t>(sum);
}

}  // namespace

Bursts ScalarBursts() { return {{RunInt8, 16}, {RunFloats, 16}}; }

}  // namespace peak

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// Keeps a result alive that nobody needs.
thread_local volatile int64_t sink;

peak::Bursts BurstsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return peak::Avx512Bursts();
  if (isa == Isa::kAvxVnni) return peak::AvxVnniBursts();
  if (isa == Isa::kAvx2) return peak::Avx2Bursts();
#elif defined(__aarch64__)
  if (isa == Isa::kI8mm) return peak::I8mmBursts();
  if (isa == Isa::kNeon) return peak::NeonBursts();
#endif
  return peak::ScalarBursts();
}

double MacsPerSecond(const peak::Burst& burst, double seconds) {
  constexpr int64_t kRounds = 20000;
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

}  // namespace

double MeasureInt8MacsPerSecond(Isa isa, double seconds) {
  return MacsPerSecond(BurstsOf(isa).int8, seconds);
}

double MeasureFloatMacsPerSecond(Isa isa, double seconds) {
  return MacsPerSecond(BurstsOf(isa).floats, seconds);
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
