// Elements of the KV cache: their addresses in pages, how they are stored, and how they are read
// back from words of shared memory.
#ifndef WEFT_COMPUTE_KERNELS_GPU_KV_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_KV_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/math.h"

namespace weft::device {

// --- addresses -------------------------------------------------------------------------------

WEFT_DEVICE std::byte* PlaceOf(const PoolView& pool, int id) {
  return pool.slabs[id >> pool.shift] + (id & ((1 << pool.shift) - 1)) * pool.bytes;
}

// The page that holds a sequence's position.
WEFT_DEVICE std::byte* PageOf(const StepView& step, const KvView& kv, int sequence, int position) {
  const int begin = step.table_begins[kv.group * step.max_sequences + sequence];
  return PlaceOf(kv.pool, step.pages[begin + (position >> kv.page_shift)]);
}

// --- elements of keys and values ---------------------------------------------------------------

template <typename Element>
struct FloatKv {
  using Raw = typename Element::Raw;
  static constexpr int kBytes = sizeof(Raw);
  static constexpr bool kScaled = false;
  template <int kN, typename Shared>
  WEFT_DEVICE static void Read(Shared& words, int word, int first, float* x) {
    Element::template Read<kN>(words, word, first, x);
  }
  // Stores up to 32 dimensions from `dim` on, one per lane; `there`: the lane's dimension exists.
  WEFT_DEVICE static void Put(std::byte* page, const KvPlane& p, int head, int token, int dim,
                              bool there, float x) {
    auto* const values = reinterpret_cast<typename Element::Stored*>(page + p.offset);
    const int64_t at = head * p.head + token * p.token + (dim + ThreadIndex() % 32) * p.dim;
    if (there) values[at] = Element::FromFloat(x);
  }
};

struct KvFloat32 {
  using Stored = float;
  using Raw = uint32_t;
  // Reads kN contiguous values, from index `first` after word `word` of shared memory.
  template <int kN, typename Shared>
  WEFT_DEVICE static void Read(Shared& words, int word, int first, float* x) {
    if constexpr (kN == 4) {
      const Words4 read = ReadWords4(words, word + first);
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) x[i] = FloatOf(read.w[i]);
    } else {
      const Words2 read = ReadWords2(words, word + first);
      WEFT_UNROLL
      for (int i = 0; i < 2; ++i) x[i] = FloatOf(read.w[i]);
    }
  }
  WEFT_DEVICE static float ToFloat(float x) { return x; }
  WEFT_DEVICE static float FromFloat(float x) { return x; }
};
// Reads 16-bit values, two per word.
template <typename Element, int kN, typename Shared>
WEFT_DEVICE void ReadHalves(Shared& words, int word, int first, float* x) {
  uint32_t read[kN / 2];
  if constexpr (kN == 4) {
    const Words2 two = ReadWords2(words, word + first / 2);
    read[0] = two.w[0];
    read[1] = two.w[1];
  } else {
    read[0] = words[word + first / 2];
  }
  WEFT_UNROLL
  for (int i = 0; i < kN; ++i) {
    x[i] = Element::ToFloat(static_cast<uint16_t>(read[i / 2] >> (16 * (i % 2))));
  }
}

struct KvFloat16 {
  using Stored = uint16_t;
  using Raw = uint16_t;
  WEFT_DEVICE static float ToFloat(uint16_t x) { return HalfToFloat(x); }
  WEFT_DEVICE static uint16_t FromFloat(float x) { return FloatToHalf(x); }
  template <int kN, typename Shared>
  WEFT_DEVICE static void Read(Shared& words, int word, int first, float* x) {
    ReadHalves<KvFloat16, kN>(words, word, first, x);
  }
};
struct KvBfloat16 {
  using Stored = uint16_t;
  using Raw = uint16_t;
  WEFT_DEVICE static float ToFloat(uint16_t x) { return BfloatToFloat(x); }
  WEFT_DEVICE static uint16_t FromFloat(float x) { return FloatToBfloat(x); }
  template <int kN, typename Shared>
  WEFT_DEVICE static void Read(Shared& words, int word, int first, float* x) {
    ReadHalves<KvBfloat16, kN>(words, word, first, x);
  }
};

struct KvInt8 {
  using Raw = uint8_t;
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  // Reads levels, to be multiplied by their scale. 2^23 + 128 + level is exact.
  template <int kN, typename Shared>
  WEFT_DEVICE static void Read(Shared& words, int word, int first, float* x) {
    const uint32_t four = words[word + first / 4];
    const uint32_t read = (four ^ 0x80808080u) >> (8 * (first % 4));
    WEFT_UNROLL
    for (int i = 0; i < kN; ++i) {
      x[i] = FloatOf(((read >> (8 * i)) & 0xFFu) | 0x4B000000u) - 8388736.0f;
    }
  }
  WEFT_DEVICE static int64_t ScaleAt(const KvPlane& p, int head, int token, int dim) {
    return head * p.scale_head + token * p.scale_token + dim / kScaleDims * p.scale_group;
  }
  // `x` is 0 in lanes without a dimension. NaN never becomes the maximum.
  WEFT_DEVICE static void Put(std::byte* page, const KvPlane& p, int head, int token, int dim,
                              bool there, float x) {
    const int lane = ThreadIndex() % 32;
    auto* const values = reinterpret_cast<int8_t*>(page + p.offset);
    auto* const scales = reinterpret_cast<uint16_t*>(page + p.scale_offset);
    const float max = WarpMax(Max(0.0f, Abs(x)));
    const uint16_t bits = FloatToHalf(Min(max / 127.0f, 65504.0f));
    const float scale = HalfToFloat(bits);
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const float clamped = Min(Max(x * inverse, -127.0f), 127.0f);
    const float rounded = (clamped + 12582912.0f) - 12582912.0f;
    if (!there) return;
    values[head * p.head + token * p.token + (dim + lane) * p.dim] =
        static_cast<int8_t>(static_cast<int>(rounded));
    if (lane == 0) scales[ScaleAt(p, head, token, dim)] = bits;
  }
};

using KvOfF32 = FloatKv<KvFloat32>;
using KvOfF16 = FloatKv<KvFloat16>;
using KvOfBF16 = FloatKv<KvBfloat16>;
using KvOfQ8_0 = KvInt8;

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_KV_DEVICE_H_
