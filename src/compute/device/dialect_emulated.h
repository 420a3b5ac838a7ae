// The dialect for the emulator; see dialect.h.
#ifndef WEFT_COMPUTE_DEVICE_DIALECT_EMULATED_H_
#define WEFT_COMPUTE_DEVICE_DIALECT_EMULATED_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "compute/device/emulator.h"
#include "compute/device/kernel.h"
#include "compute/device/words.h"

#define WEFT_DEVICE inline
#define WEFT_UNROLL

#define WEFT_KERNEL_OF_KIND_(Name, Args, cooperates, threads, bytes)                       \
  static void Name##Body(const Args& a);                                                   \
  static void Name##Run(const void* args) { Name##Body(*static_cast<const Args*>(args)); } \
  const ::weft::device::KernelOf<Args> Name = {                                            \
      {#Name, &Name##Run, sizeof(Args), cooperates, threads, bytes}};                      \
  static void Name##Body(const Args& a)
#define WEFT_KERNEL(Name, Args) WEFT_KERNEL_OF_KIND_(Name, Args, false, 256, 0)
#define WEFT_COOPERATIVE_KERNEL(Name, Args, threads) \
  WEFT_KERNEL_OF_KIND_(Name, Args, true, threads, 0)
#define WEFT_RESIDENT_KERNEL(Name, Args, threads, blocks) \
  WEFT_COOPERATIVE_KERNEL(Name, Args, threads)
#define WEFT_STAGING_KERNEL(Name, Args, threads, bytes)                     \
  static_assert((bytes) <= ::weft::device::kSharedBytes, "of each device"); \
  WEFT_KERNEL_OF_KIND_(Name, Args, true, threads, bytes)

// An array in the block's shared memory; the emulator checks every access.
#define WEFT_SHARED(type, name, n)                                                     \
  const ::weft::device::SharedArray<type> name {                                       \
    ::weft::device::emulator::TakeShared(n, ::weft::device::emulator::Site::current()) \
  }
#define WEFT_DYNAMIC_SHARED(type, name, first, n)                                              \
  const ::weft::device::SharedArray<type> name {                                               \
    ::weft::device::emulator::TakeDynamic(first, n, ::weft::device::emulator::Site::current()) \
  }

namespace weft::device {

template <typename T>
class SharedArray {
 public:
  static_assert(sizeof(T) == 4, "shared memory is watched word by word");
  explicit SharedArray(int first) : first_(first) {}

  class Element {
   public:
    Element(int word, const emulator::Site& site) : word_(word), site_(site) {}
    // NOLINTNEXTLINE(google-explicit-constructor): it reads like an element of an array
    operator T() const { return std::bit_cast<T>(emulator::ReadShared(word_, site_)); }
    T operator=(T value) const {
      emulator::WriteShared(word_, std::bit_cast<uint32_t>(value), site_);
      return value;
    }

   private:
    const int word_;
    const emulator::Site site_;
  };
  struct Index {
    template <typename Integer>
    // NOLINTNEXTLINE(google-explicit-constructor): an index, and where it was written
    Index(Integer i, emulator::Site from = emulator::Site::current())
        : at(static_cast<int>(i)), site(from) {}
    int at;
    emulator::Site site;
  };
  Element operator[](const Index& index) const { return Element(first_ + index.at, index.site); }
  // The word's index in the block's memory.
  int WordAt(int i) const { return first_ + i; }

 private:
  const int first_;
};

inline constexpr int kProcessorSharedBytes = 228 << 10;

inline int ThreadIndex() { return emulator::place.thread; }
inline int ThreadCount() { return emulator::place.n_threads; }
inline int BlockX() { return emulator::place.block_x; }
inline int BlockY() { return emulator::place.block_y; }
inline int BlockZ() { return emulator::place.block_z; }

inline void Barrier(const emulator::Site& site = emulator::Site::current()) {
  emulator::WaitForBlock(site);
}

// Counts tiles of the KV cache that a warp reads; for tests.
inline void CountTile() { ++emulator::n_tiles; }

inline bool Arrive(int32_t* count, int n, int all,
                   const emulator::Site& site = emulator::Site::current()) {
  return emulator::Arrive(count, n, all, site);
}

template <typename T>
T Load(const T* p, const emulator::Site& site = emulator::Site::current()) {
  emulator::CheckAligned(p, sizeof(T), site);
  return *p;
}
template <typename T>
void Store(T* p, std::type_identity_t<T> x,
           const emulator::Site& site = emulator::Site::current()) {
  emulator::CheckAligned(p, sizeof(T), site);
  *p = x;
}
inline Words2 LoadWords2(const void* p, const emulator::Site& site = emulator::Site::current()) {
  emulator::CheckAligned(p, sizeof(Words2), site);
  Words2 x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline Words4 LoadWords4(const void* p, const emulator::Site& site = emulator::Site::current()) {
  emulator::CheckAligned(p, sizeof(Words4), site);
  Words4 x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline void StoreWords4(void* p, const Words4& x,
                        const emulator::Site& site = emulator::Site::current()) {
  emulator::CheckAligned(p, sizeof(Words4), site);
  std::memcpy(p, &x, sizeof(x));
}

template <typename T>
Words2 ReadWords2(const SharedArray<T>& shared, int word,
                  const emulator::Site& site = emulator::Site::current()) {
  const int first = shared.WordAt(word);
  if (first % 2 != 0) emulator::ComplainOfAlignment(site);
  return {{emulator::ReadShared(first, site), emulator::ReadShared(first + 1, site)}};
}
template <typename T>
Words4 ReadWords4(const SharedArray<T>& shared, int word,
                  const emulator::Site& site = emulator::Site::current()) {
  return emulator::ReadSharedWords(shared.WordAt(word), site);
}
template <typename T>
void WriteWords4(const SharedArray<T>& shared, int word, const Words4& x,
                 const emulator::Site& site = emulator::Site::current()) {
  emulator::WriteSharedWords(shared.WordAt(word), x, site);
}
template <typename T>
void CopyWords4(const SharedArray<T>& shared, int word, const void* from,
                const emulator::Site& site = emulator::Site::current()) {
  emulator::CheckAligned(from, sizeof(Words4), site);
  emulator::BeginCopy(shared.WordAt(word), from, site);
}
inline void CommitCopies() { emulator::CommitCopies(); }
template <int kLeft>
void WaitCopies() {
  emulator::WaitCopies(kLeft);
}

inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }

inline float Shuffle(float value, int lane,
                     const emulator::Site& site = emulator::Site::current()) {
  return FloatOf(emulator::ExchangeInWarp({{BitsOf(value)}}, site)[lane & 31].w[0]);
}
inline float ShuffleXor(float value, int mask,
                        const emulator::Site& site = emulator::Site::current()) {
  return Shuffle(value, (ThreadIndex() & 31) ^ mask, site);
}

// c plus the dot product of four signed bytes.
inline int DotBytes(uint32_t a, uint32_t b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return c;
}

inline uint32_t PickBytes(uint32_t a, uint32_t b, uint32_t places) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int j = 0; j < 4; ++j) {
    const uint32_t place = (places >> (4 * j)) & 7u;
    out |= static_cast<uint32_t>((bytes >> (8 * place)) & 0xFFu) << (8 * j);
  }
  return out;
}

// Adds one half of a tile (dialect.h) to a lane's sums; its parts are words `a`, `a + 1` and `b`.
inline void AddTileOfLanes(const emulator::LaneWords* lanes, int a, int b, int* sums) {
  const emulator::LaneWords* const rows = lanes + ThreadIndex() % 32 / 4 * 4;
  const emulator::LaneWords* const columns = lanes + ThreadIndex() % 4 * 8;
  for (int k = 0; k < 4; ++k) {
    for (int i = 0; i < 4; ++i) {
      sums[i] = DotBytes(rows[k].w[a + i / 2], columns[4 * (i % 2) + k].w[b], sums[i]);
    }
  }
}
inline void MultiplyTile16(uint32_t a0, uint32_t a1, uint32_t b, int* sums,
                           const emulator::Site& site = emulator::Site::current()) {
  AddTileOfLanes(emulator::ExchangeInWarp({{a0, a1, b}}, site), 0, 2, sums);
}
inline void MultiplyTile32(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                           uint32_t b1, int* sums,
                           const emulator::Site& site = emulator::Site::current()) {
  const auto* const lanes = emulator::ExchangeInWarp({{a0, a1, a2, a3, b0, b1}}, site);
  AddTileOfLanes(lanes, 0, 4, sums);
  AddTileOfLanes(lanes, 2, 5, sums);
}

inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float SquareRoot(float x) { return std::sqrt(x); }
inline float HalfToFloat(uint16_t bits) { return F16ToF32(bits); }
inline uint16_t FloatToHalf(float x) { return F32ToF16(x); }

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_DIALECT_EMULATED_H_
