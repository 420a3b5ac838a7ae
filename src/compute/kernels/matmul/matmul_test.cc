#include "compute/kernels/matmul/matmul.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/half.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/quants/quants.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

std::vector<DType> DecodableTypes() {
  std::vector<DType> types;
  for (uint32_t number = 0; number < 64; ++number) {
    const DTypeInfo* info = FindDType(number);
    if (info != nullptr && CanDequantize(info->type)) types.push_back(info->type);
  }
  return types;
}

// Where the half-precision scales of a stored block lie.
std::vector<int> HalfOffsets(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kTQ1_0:
      return {52};
    case DType::kTQ2_0:
      return {64};
    case DType::kMXFP4:
    case DType::kNVFP4:
    case DType::kIQ1_M:  // in nibbles
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {};
    default:
      return {0};
  }
}

enum class Scales { kPlain, kExtreme };

// A half of either sign: near 0.01, or any finite one, subnormal and zero included.
uint16_t RandomHalf(Scales scales, std::mt19937& random) {
  if (scales == Scales::kPlain) {
    return F32ToF16((static_cast<float>(random() % 2001) - 1000.0f) * 2e-5f);
  }
  uint16_t half;
  do {
    half = static_cast<uint16_t>(random());
  } while ((half & 0x7C00) == 0x7C00);
  return half;
}

float RandomFloat(Scales scales, std::mt19937& random) {
  if (scales == Scales::kPlain) return (static_cast<float>(random() % 2001) - 1000.0f) * 1e-3f;
  return std::ldexp(static_cast<float>(random() % 2001) - 1000.0f,
                    static_cast<int>(random() % 80) - 40);
}

// Draws the scales of stored rows, or the values of float types.
void DrawScales(DType type, Scales scales, std::mt19937& random, std::vector<std::byte>& rows) {
  const DTypeInfo& info = InfoOf(type);
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(info.block_bytes)) {
    for (int offset : HalfOffsets(type)) {
      const uint16_t half = RandomHalf(scales, random);
      std::memcpy(&rows[at + static_cast<size_t>(offset)], &half, 2);
    }
    const float value = RandomFloat(scales, random);
    const uint16_t value_f16 = RandomHalf(scales, random), value_bf16 = F32ToBF16(value);
    if (type == DType::kF32) std::memcpy(&rows[at], &value, 4);
    if (type == DType::kF16) std::memcpy(&rows[at], &value_f16, 2);
    if (type == DType::kBF16) std::memcpy(&rows[at], &value_bf16, 2);
    if (type == DType::kMXFP4 && scales == Scales::kPlain) {
      rows[at] = static_cast<std::byte>(118 + random() % 6);
    }
    if (type == DType::kNVFP4 && scales == Scales::kPlain) {
      for (int s = 0; s < 4; ++s) rows[at + s] = static_cast<std::byte>(random() % 24);
    }
    if (type == DType::kIQ1_M) {
      for (int nibble = 0; nibble < 4; ++nibble) {
        std::byte& byte = rows[at + 49 + 2 * nibble];
        byte = (byte & std::byte{15}) | std::byte(value_f16 >> (4 * nibble) << 4);
      }
    }
  }
}

// Random stored rows: any level bits, scales as asked for.
std::vector<std::byte> RandomRows(DType type, int64_t n_rows, int64_t n_in, Scales scales,
                                  std::mt19937& random) {
  std::vector<std::byte> rows(static_cast<size_t>(n_rows * RowBytes(type, n_in)));
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
  DrawScales(type, scales, random, rows);
  return rows;
}

struct Packed {
  AlignedBuffer tiles;
  PackedMatrix matrix;
};

Packed Pack(DType type, const std::vector<std::byte>& rows, int64_t n_out, int64_t n_in) {
  const int64_t tile_bytes = PackedTileBytes(type, n_in), row_bytes = RowBytes(type, n_in);
  Packed packed;
  packed.tiles = AlignedBuffer(static_cast<size_t>(tile_bytes * TileCount(n_out)));
  // Whatever lies in the buffer before, packing decides every byte.
  std::memset(packed.tiles.data(), 0xA5, packed.tiles.size());
  for (int64_t t = 0; t < TileCount(n_out); ++t) {
    PackTile(type, rows.data() + t * kTileOutputs * row_bytes,
             static_cast<int>(std::min<int64_t>(kTileOutputs, n_out - t * kTileOutputs)), n_in,
             packed.tiles.data() + t * tile_bytes);
  }
  packed.matrix = {type, n_in, n_out, packed.tiles.data()};
  return packed;
}

// Rows of activations in both forms.
struct Activations {
  Activations(int64_t n_rows, int64_t n_in, const MatmulKernels& kernels, Scales scales,
              std::mt19937& random)
      : n_in(n_in), values(static_cast<size_t>(n_rows * n_in)) {
    for (float& value : values) value = RandomFloat(scales, random);
    Quantize(kernels);
  }

  // The rows from `row` on, alone.
  Activations(const Activations& all, int64_t row, const MatmulKernels& kernels)
      : n_in(all.n_in), values(all.values.begin() + row * n_in, all.values.end()) {
    Quantize(kernels);
  }

  void Quantize(const MatmulKernels& kernels) {
    if (n_in % 32 != 0) return;
    const int64_t n_rows = static_cast<int64_t>(values.size()) / n_in;
    blocks.resize(static_cast<size_t>(PanelCount(n_rows) * (n_in / 32)));
    // Missing rows of the last panel are never looked at.
    std::memset(blocks.data(), 0xFF, blocks.size() * sizeof(ActivationBlock));
    for (int64_t r = 0; r < n_rows; ++r) {
      kernels.quantize_row(&values[r * n_in], n_in, static_cast<int>(r % kPanelRows),
                           &blocks[r / kPanelRows * (n_in / 32)]);
    }
  }

  ActivationRows Rows() const { return {values.data(), n_in, {blocks.data()}}; }

  // The value that the kernels take for input i of a row.
  double At(ActivationForm form, int64_t row, int64_t i) const {
    if (form == ActivationForm::kFloat) return values[row * n_in + i];
    const ActivationBlock& block = blocks[row / kPanelRows * (n_in / 32) + i / 32];
    const int8_t level = block.q[i % 32 / 4][row % kPanelRows][i % 4];
    return static_cast<double>(block.scale[row % kPanelRows]) * level;
  }

  int64_t n_in;
  std::vector<float> values;
  std::vector<ActivationBlock> blocks;
};

std::vector<float> Product(const MatmulKernels& kernels, const PackedMatrix& w,
                           const ActivationRows& x, int64_t n_rows) {
  std::vector<float> out(static_cast<size_t>(n_rows * w.n_out), -77.0f);
  kernels.matmul(w, x, n_rows, 0, TileCount(w.n_out), out.data(), w.n_out);
  return out;
}

// The product of the rows from `row` on.
std::vector<float> ProductFrom(const MatmulKernels& kernels, const PackedMatrix& w,
                               const Activations& x, int64_t row, int64_t n_rows) {
  const Activations part(x, row, kernels);
  return Product(kernels, w, part.Rows(), n_rows);
}

// Equal bits; any NaN equals any other (its sign and payload are not arithmetic).
void ExpectSameBits(const float* expected, const float* actual, int64_t n,
                    const std::string& what) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(actual[i]))
        << what << " at " << i << ": " << expected[i] << " and " << actual[i];
  }
}

class MatmulTest : public ::testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  // A width that is not a multiple of a chunk where the type allows it.
  int64_t OddInputs() const {
    const int64_t block = InfoOf(type()).block_values;
    return block == 1 ? 77 : block == 32 ? 32 * 11 : 256 * 3;
  }
};

TEST_P(MatmulTest, ScalarIsTheProductOfTheDecodedWeights) {
  std::mt19937 random(11);
  const MatmulKernels& kernels = MatmulKernelsFor(Isa::kScalar);
  const ActivationForm form = ActivationFormOf(type());
  for (const int64_t n_in : {InfoOf(type()).block_values * 1, OddInputs()}) {
    const int64_t n_out = 37, n_rows = 3;
    const std::vector<std::byte> rows = RandomRows(type(), n_out, n_in, Scales::kPlain, random);
    const Packed packed = Pack(type(), rows, n_out, n_in);
    const Activations x(n_rows, n_in, kernels, Scales::kPlain, random);
    const std::vector<float> out = Product(kernels, packed.matrix, x.Rows(), n_rows);
    std::vector<float> weights(static_cast<size_t>(n_in));
    for (int64_t o = 0; o < n_out; ++o) {
      Dequantize(type(), rows.data() + o * RowBytes(type(), n_in), n_in, weights.data());
      for (int64_t r = 0; r < n_rows; ++r) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < n_in; ++i) {
          const double product = weights[i] * x.At(form, r, i);
          sum += product;
          magnitude += std::abs(product);
        }
        // Decoded minima are rounded once, at the size of scale * level; the rest is
        // the rounding of the accumulator.
        EXPECT_NEAR(out[r * n_out + o], sum, 4e-6 * magnitude + 1e-12)
            << NameOf(type()) << " n_in " << n_in << " row " << r << " output " << o;
      }
    }
  }
}

TEST_P(MatmulTest, EveryIsaAndRowCountGivesTheBitsOfScalarRowsAlone) {
  std::mt19937 random(12);
  const MatmulKernels& scalar = MatmulKernelsFor(Isa::kScalar);
  constexpr int64_t kMaxRows = 40;
  for (const Scales scales : {Scales::kPlain, Scales::kExtreme}) {
    const int64_t n_in = OddInputs(), n_out = 16 * 2 + 5;
    const std::vector<std::byte> rows = RandomRows(type(), n_out, n_in, scales, random);
    const Packed packed = Pack(type(), rows, n_out, n_in);
    const Activations x(kMaxRows, n_in, scalar, scales, random);
    std::vector<float> expected;
    for (int64_t r = 0; r < kMaxRows; ++r) {
      const std::vector<float> row = ProductFrom(scalar, packed.matrix, x, r, 1);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    for (const Isa isa : AvailableIsas()) {
      for (int64_t n_rows = 1; n_rows <= kMaxRows; ++n_rows) {
        if (isa == Isa::kScalar && n_rows % 13 != 0) continue;  // slow, and has no variants
        const int64_t first = kMaxRows - n_rows;
        const std::vector<float> out =
            ProductFrom(MatmulKernelsFor(isa), packed.matrix, x, first, n_rows);
        ASSERT_NO_FATAL_FAILURE(
            ExpectSameBits(expected.data() + first * n_out, out.data(), n_rows * n_out,
                           std::string(NameOf(type())) + " " + std::string(NameOf(isa)) + " " +
                               std::to_string(n_rows) + " rows"));
      }
    }
  }
}

// Levels all of one value, the greatest and the least among them, by activations that are all at
// one end of theirs: no sum of any width overflows.
TEST_P(MatmulTest, GreatestSumsHaveTheBitsOfScalar) {
  std::mt19937 random(16);
  const MatmulKernels& scalar = MatmulKernelsFor(Isa::kScalar);
  constexpr int64_t kRows = 6;
  const int64_t n_in = OddInputs(), n_out = 16;
  std::vector<std::byte> rows(static_cast<size_t>(n_out * RowBytes(type(), n_in)));
  Activations x(kRows, n_in, scalar, Scales::kPlain, random);
  for (int64_t i = 0; i < kRows * n_in; ++i) x.values[i] = i / n_in % 2 == 0 ? 1.0f : -1.0f;
  for (const int levels : {0x00, 0x7F, 0x80, 0xFF}) {
    std::fill(rows.begin(), rows.end(), static_cast<std::byte>(levels));
    DrawScales(type(), Scales::kPlain, random, rows);
    const Packed packed = Pack(type(), rows, n_out, n_in);
    const std::vector<float> expected = ProductFrom(scalar, packed.matrix, x, 0, kRows);
    for (const Isa isa : AvailableIsas()) {
      const std::vector<float> out = ProductFrom(MatmulKernelsFor(isa), packed.matrix, x, 0, kRows);
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits(expected.data(), out.data(), kRows * n_out, std::string(NameOf(isa))));
    }
  }
}

// More rows than one pass over the tiles takes.
TEST_P(MatmulTest, ManyRowsHaveTheBitsOfRowsAlone) {
  std::mt19937 random(13);
  constexpr int64_t kRows = 230;
  const int64_t n_in = 1536, n_out = 17;
  const std::vector<std::byte> rows = RandomRows(type(), n_out, n_in, Scales::kPlain, random);
  const Packed packed = Pack(type(), rows, n_out, n_in);
  for (const Isa isa : AvailableIsas()) {
    if (isa == Isa::kScalar) continue;
    const MatmulKernels& kernels = MatmulKernelsFor(isa);
    const Activations x(kRows, n_in, kernels, Scales::kPlain, random);
    const std::vector<float> together = Product(kernels, packed.matrix, x.Rows(), kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> alone = ProductFrom(kernels, packed.matrix, x, r, 1);
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits(alone.data(), together.data() + r * n_out, n_out,
                         std::string(NameOf(isa)) + " row " + std::to_string(r)));
    }
  }
}

TEST_P(MatmulTest, TileRangesWriteTheirOutputsAndNoOther) {
  std::mt19937 random(14);
  const int64_t n_in = OddInputs(), n_out = 16 * 3 + 1, n_rows = 5, stride = n_out + 3;
  const std::vector<std::byte> rows = RandomRows(type(), n_out, n_in, Scales::kPlain, random);
  const Packed packed = Pack(type(), rows, n_out, n_in);
  for (const Isa isa : AvailableIsas()) {
    const MatmulKernels& kernels = MatmulKernelsFor(isa);
    const Activations x(n_rows, n_in, kernels, Scales::kPlain, random);
    const std::vector<float> whole = Product(kernels, packed.matrix, x.Rows(), n_rows);
    for (int64_t begin = 0; begin <= 4; ++begin) {
      for (int64_t end = begin; end <= 4; ++end) {
        std::vector<float> out(static_cast<size_t>(n_rows * stride), -77.0f);
        kernels.matmul(packed.matrix, x.Rows(), n_rows, begin, end, out.data(), stride);
        for (int64_t i = 0; i < n_rows * stride; ++i) {
          const int64_t o = i % stride;
          const bool inside = o >= begin * 16 && o < std::min<int64_t>(end * 16, n_out);
          ASSERT_EQ(out[i], inside ? whole[i / stride * n_out + o] : -77.0f);
        }
      }
    }
  }
}

// A packed tile holds no less and no more than its stored rows: the product with
// unit vectors gives back every weight exactly.
TEST_P(MatmulTest, UnitVectorsGiveBackTheWeights) {
  std::mt19937 random(15);
  const int64_t n_in = OddInputs(), n_out = 16;
  const std::vector<std::byte> rows = RandomRows(type(), n_out, n_in, Scales::kPlain, random);
  const Packed packed = Pack(type(), rows, n_out, n_in);
  const MatmulKernels& kernels = MatmulKernelsFor(AvailableIsas().back());
  std::vector<float> weights(static_cast<size_t>(n_out * n_in));
  Dequantize(type(), rows.data(), n_out * n_in, weights.data());
  // With q = 1 and scale 1 by hand: quantize_row would choose q = 127.
  const bool has_minima = FormatOf(type()).mins;
  for (int64_t i = 0; i < n_in; ++i) {
    std::vector<float> values(static_cast<size_t>(n_in));
    std::vector<ActivationBlock> blocks(static_cast<size_t>(n_in / 32 + 1));
    for (ActivationBlock& block : blocks) matmul_internal::SetSums(&block, 0, 1.0f, 0, 0);
    values[i] = 1.0f;
    ActivationBlock& block = blocks[i / 32];
    block.q[i % 32 / 4][0][i % 4] = 1;
    matmul_internal::SetSums(&block, 0, 1.0f, i % 32 < 16, i % 32 >= 16);
    const ActivationRows x = {values.data(), n_in, {blocks.data()}};
    const std::vector<float> out = Product(kernels, packed.matrix, x, 1);
    for (int64_t o = 0; o < n_out; ++o) {
      const float weight = weights[o * n_in + i];
      // A weight with a minimum is two products, whose sum decoding rounds otherwise.
      const float slack = has_minima ? 4e-7f : 0.0f;
      ASSERT_NEAR(out[o], weight, slack) << NameOf(type()) << " weight " << o << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulTest, ::testing::ValuesIn(DecodableTypes()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// Packed weights are kept on disk. If this fails, the form has changed: raise kPackedForm, and put
// the new figure here.
TEST(PackedBytesTest, AreOfTheFormThatTheirNumberStandsFor) {
  std::mt19937 random(17);
  uint64_t digest = 0xCBF29CE484222325;
  for (const DType type : DecodableTypes()) {
    const int64_t n_in = 512, n_out = 19;
    std::vector<std::byte> rows(static_cast<size_t>(n_out * RowBytes(type, n_in)));
    // No floats that are not finite.
    for (std::byte& byte : rows) byte = static_cast<std::byte>(random() & 0x3F);
    const Packed packed = Pack(type, rows, n_out, n_in);
    for (const std::byte byte : packed.tiles.As<std::byte>()) {
      digest = (digest ^ static_cast<uint64_t>(byte)) * 0x100000001B3;
    }
  }
  EXPECT_EQ(kPackedForm, 2u);
  EXPECT_EQ(digest, 17184289819495157326u);
}

TEST(PackedBytesTest, StayCloseToTheStoredBytes) {
  for (const DType type : DecodableTypes()) {
    if (ActivationFormOf(type) != ActivationForm::kInt8) continue;
    const Format& f = FormatOf(type);
    const double packed = static_cast<double>(PackedTileBytes(type, 4096));
    double stored = 16.0 * static_cast<double>(RowBytes(type, 4096));
    // Scales of 64 or more values are repeated, those of NVFP4 become halves, and codebooks are
    // looked up.
    const bool has_codebook = (f.super_shift | f.min_shift) != 0 || type == DType::kIQ3_S;
    if (has_codebook || (f.scales == ScaleForm::kF16 && InfoOf(type).block_values > 32)) {
      const double per_part = f.scales == ScaleForm::kF16 ? 16 : f.mins ? 16 : 8;
      stored = 16.0 * 4096 * (f.bits + per_part / (f.halves ? 16 : 32) + 0.125) / 8;
    }
    EXPECT_LE(packed, 1.04 * stored) << NameOf(type);
    EXPECT_EQ(PackedTileBytes(type, 4096) % 64, 0) << NameOf(type);
  }
  EXPECT_EQ(PackedTileBytes(DType::kF16, 3), 128);
  EXPECT_EQ(PackedTileBytes(DType::kQ4_0, 0), 0);
}

TEST(QuantizeRowTest, EveryIsaGivesTheSameBytes) {
  std::mt19937 random(16);
  constexpr int64_t kWidth = 32 * 64;
  std::vector<float> values(kWidth);
  for (int64_t i = 0; i < kWidth; ++i) {
    // Blocks of plain values, of any bits at all, of tiny ones, of ties.
    const int64_t kind = i / 32 % 4;
    values[i] = kind == 0   ? RandomFloat(Scales::kPlain, random)
                : kind == 1 ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                : kind == 2 ? RandomFloat(Scales::kPlain, random) * 0x1p-112f
                            : static_cast<float>(random() % 255) - 127.5f;
    if (kind == 3 && i % 32 == 0) values[i] = 127.0f * (random() % 2 == 0 ? 1.0f : 0.5f);
  }
  using Blocks = std::vector<ActivationBlock>;
  const auto quantized = [&](Isa isa) {
    Blocks blocks(kWidth / 32);
    std::memset(blocks.data(), 0x5A, kWidth / 32 * sizeof(ActivationBlock));
    for (const int row : {2, 1}) {
      MatmulKernelsFor(isa).quantize_row(values.data(), kWidth, row, blocks.data());
    }
    return blocks;
  };
  const Blocks expected = quantized(Isa::kScalar);
  for (const Isa isa : AvailableIsas()) {
    const Blocks blocks = quantized(isa);
    for (int64_t b = 0; b < kWidth / 32; ++b) {
      // All rows, those that were not written too.
      ExpectSameBits(expected[b].scale, blocks[b].scale, kPanelRows, std::string(NameOf(isa)));
      EXPECT_EQ(0, std::memcmp(expected[b].q, blocks[b].q, sizeof(blocks[b].q))) << NameOf(isa);
      ExpectSameBits(expected[b].sum, blocks[b].sum, kPanelRows, std::string(NameOf(isa)));
      for (int row = 0; row < kPanelRows; ++row) {
        EXPECT_EQ(expected[b].half_sums[row], blocks[b].half_sums[row]) << NameOf(isa);
        for (int start = 0; start < 4; ++start) {
          EXPECT_EQ(expected[b].starts[start][row], blocks[b].starts[start][row]) << NameOf(isa);
        }
      }
    }
  }
}

TEST(QuantizeRowTest, MeaningOfScalesLevelsAndSums) {
  for (const Isa isa : AvailableIsas()) {
    const MatmulKernels& kernels = MatmulKernelsFor(isa);
    float values[32] = {};
    ActivationBlock block;
    constexpr int kRow = 3;
    const auto q = [&](int i) { return block.q[i / 4][kRow][i % 4]; };
    values[0] = -2.0f;
    values[1] = 1.0f;
    values[20] = 0.5f;
    kernels.quantize_row(values, 32, kRow, &block);
    EXPECT_EQ(block.scale[kRow], 2.0f / 127.0f);
    EXPECT_EQ(q(0), -127);
    EXPECT_EQ(q(1), 64);  // 63.5, to even
    EXPECT_EQ(q(20), 32);
    EXPECT_EQ(block.sum[kRow], 127 - 64 - 32);
    EXPECT_EQ(block.starts[matmul_internal::kStart8][kRow],
              matmul_internal::kStartBits + 8 * (127 - 64 - 32));
    EXPECT_EQ(block.starts[matmul_internal::kStart128][kRow],
              matmul_internal::kStartBits + 128 * (127 - 64 - 32));
    EXPECT_EQ(block.starts[matmul_internal::kStart32First][kRow],
              matmul_internal::kStartBits + 32 * (127 - 64));
    EXPECT_EQ(block.starts[matmul_internal::kStart32Second][kRow],
              matmul_internal::kStartBits - 32 * 32);
    EXPECT_EQ(static_cast<int16_t>(block.half_sums[kRow] & 0xFFFF), 127 - 64);
    EXPECT_EQ(block.half_sums[kRow] >> 16, -32);

    for (float& value : values) value = 0.0f;
    kernels.quantize_row(values, 32, kRow, &block);
    EXPECT_EQ(block.scale[kRow], 0.0f);

    for (const float broken :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      values[7] = -broken;
      values[8] = 1e30f;
      kernels.quantize_row(values, 32, kRow, &block);
      EXPECT_TRUE(std::isnan(block.scale[kRow])) << NameOf(isa);
      EXPECT_EQ(q(8), 0);
      EXPECT_EQ(block.sum[kRow], 0);
      EXPECT_EQ(block.starts[matmul_internal::kStart8][kRow], matmul_internal::kStartBits);
    }
  }
}

}  // namespace
}  // namespace weft
