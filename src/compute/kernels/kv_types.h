// The types in which a KV cache holds keys and values.
//
// Q8_0, Q5_0 and Q4_0 keep integers, with a scale for 32 dimensions of one position. Q5_0 and Q4_0
// keep each head after a Hadamard rotation: it spreads a dimension that is much larger than the
// others over all of them, which would otherwise set the scale of 32.
#ifndef WEFT_COMPUTE_KERNELS_KV_TYPES_H_
#define WEFT_COMPUTE_KERNELS_KV_TYPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace weft {

struct KvTypes {
  DType keys = DType::kF16;
  DType values = DType::kF16;

  // Always inlined, as all functions here: this file is compiled for several instruction sets, and
  // the linker must never choose one copy for all.
  constexpr KvTypes() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): one type stands for both.
  [[gnu::always_inline]] constexpr KvTypes(DType both) : keys(both), values(both) {}
  [[gnu::always_inline]] constexpr KvTypes(DType of_keys, DType of_values)
      : keys(of_keys), values(of_values) {}
  [[gnu::always_inline]] friend constexpr bool operator==(const KvTypes& a, const KvTypes& b) {
    return a.keys == b.keys && a.values == b.values;
  }
};

// Bits of a stored level; 0 if the type holds floats.
[[gnu::always_inline]] constexpr int LevelBits(DType type) {
  return type == DType::kQ8_0 ? 8 : type == DType::kQ5_0 ? 5 : type == DType::kQ4_0 ? 4 : 0;
}
[[gnu::always_inline]] constexpr bool HoldsLevels(KvTypes types) {
  return LevelBits(types.keys) > 0;
}
// Whether heads are rotated before they are stored.
[[gnu::always_inline]] constexpr bool RotatesHeads(DType type) {
  return LevelBits(type) == 4 || LevelBits(type) == 5;
}

// All pairs of Q8_0, Q5_0 and Q4_0.
std::vector<KvTypes> LevelKvTypes();
// The same after these.
std::vector<KvTypes> WithLevelKvTypes(std::vector<KvTypes> types);
// "Q8_0", or "Q5_0,Q4_0".
std::string NameOf(KvTypes types);

// The rotation: heads are cut into runs of a power of two, largest first and at most
// kMaxRotatedRun, and each is multiplied by the normalised Hadamard matrix of its size, which is
// its own inverse.
inline constexpr int64_t kMaxRotatedRun = 256;
// The run that begins where `n_left` (at least one) dimensions are left.
[[gnu::always_inline]] constexpr int64_t RotatedRun(int64_t n_left) {
  int64_t run = kMaxRotatedRun;
  while (run > n_left) run /= 2;
  return run;
}
// In the kernels' order of additions.
void RotateHead(float* x, int64_t n);
// `x` as a type that rotates heads gives it back.
void RoundAsStored(DType type, float* x, int64_t n);

// The levels of Q5_0 and Q4_0: odd numbers from -MaxLevel to MaxLevel, times a scale; level
// 2 i - MaxLevel is stored as i.
[[gnu::always_inline]] constexpr int MaxLevel(int bits) { return (1 << bits) - 1; }

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_KV_TYPES_H_
