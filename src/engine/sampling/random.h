// Stateless randomness: equal (seed, position) give equal numbers on every machine, whatever ran
// before. Any thread.
#ifndef WEFT_ENGINE_SAMPLING_RANDOM_H_
#define WEFT_ENGINE_SAMPLING_RANDOM_H_

#include <cstdint>

namespace weft {

// A bijective mix of 64 bits in which every input bit reaches every output bit
// (the finaliser of SplitMix64).
inline uint64_t MixBits(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline uint64_t RandomBits(uint64_t seed, uint64_t position) {
  return MixBits(MixBits(seed) ^ (position * 0xD1B54A32D192ED03));
}

// Uniform in [0, 1), 53 bits.
inline double RandomUniform(uint64_t seed, uint64_t position) {
  return static_cast<double>(RandomBits(seed, position) >> 11) * 0x1p-53;
}

// The seed for one of several choices that fork from the same prompt; choice 0 keeps the turn's
// own.
inline uint64_t ChoiceSeed(uint64_t seed, int choice) {
  return choice == 0 ? seed : MixBits(seed ^ (static_cast<uint64_t>(choice) << 32));
}

}  // namespace weft

#endif  // WEFT_ENGINE_SAMPLING_RANDOM_H_
