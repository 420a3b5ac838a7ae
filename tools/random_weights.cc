#include "tools/random_weights.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/half.h"
#include "compute/kernels/quants/quants.h"

namespace weft::tools {
namespace {

// Values in a pool: enough that repetitions do not show, few enough that it
// stays in a cache.
constexpr int64_t kPoolValues = int64_t{1} << 19;
// A piece of a pool; shorter where a row is not a multiple of it.
constexpr int64_t kPieceValues = 256;

// A bijection of 64-bit numbers that scatters neighbours (splitmix64's finish).
constexpr uint64_t Scatter(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

uint64_t SeedOf(uint64_t seed, std::string_view name) {
  for (const char c : name) seed = Scatter(seed ^ static_cast<unsigned char>(c));
  return seed;
}

// Value `index` of the stream `seed`, even in [low, high).
float RandomFloat(uint64_t seed, uint64_t index, float low, float high) {
  const auto unit = static_cast<float>(Scatter(seed + index) >> 40) * 0x1p-24f;
  return low + (high - low) * unit;
}

bool IsPlain(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// Blocks of NVFP4: random codes, and scales of 128 to 240. Nothing is rounded, because only their
// variance matters.
void StoreFp4(uint64_t seed, uint64_t first, size_t n, std::byte* out) {
  constexpr size_t kBlockValues = 64, kScales = 4, kBlockBytes = 36;
  for (size_t block = 0; block < n / kBlockValues; ++block, out += kBlockBytes) {
    for (size_t i = 0; i < kBlockBytes; ++i) {
      const uint64_t random = Scatter(seed + first + block * kBlockValues + i);
      out[i] = static_cast<std::byte>(i < kScales ? 0x70 | (random & 7) : random & 255);
    }
  }
}

// Stores the values `first`, `first` + 1, ... of the stream `seed`.
void Store(DType type, uint64_t seed, uint64_t first, float limit, std::span<float> scratch,
           std::byte* out) {
  if (type == DType::kNVFP4) return StoreFp4(seed, first, scratch.size(), out);
  for (size_t i = 0; i < scratch.size(); ++i) {
    const float value = RandomFloat(seed, first + i, -limit, limit);
    scratch[i] = value;
    if (type == DType::kF32) std::memcpy(out + i * 4, &value, 4);
    if (type == DType::kF16 || type == DType::kBF16) {
      const uint16_t half = type == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      std::memcpy(out + i * 2, &half, 2);
    }
  }
  if (!IsPlain(type)) {
    Quantize(type, scratch.data(), static_cast<int64_t>(scratch.size()), nullptr, out);
  }
}

}  // namespace

bool CanMake(DType type) { return IsPlain(type) || CanQuantize(type) || type == DType::kNVFP4; }

float FactorOf(DType type, float limit) {
  if (type != DType::kNVFP4) return 1;
  // The root mean squares of FP4's values, and of StoreFp4's scales.
  const double values = std::sqrt((0.25 + 1 + 2.25 + 4 + 9 + 16 + 36) / 8);
  double squares = 0;
  for (int step = 8; step < 16; ++step) squares += 16.0 * step * 16.0 * step / 8;
  return static_cast<float>(limit / std::sqrt(3.0) / (values * std::sqrt(squares)));
}

const std::vector<std::byte>& RandomWeights::PoolOf(const PoolKey& key) {
  std::vector<std::byte>& pool = pools_[key];
  if (!pool.empty()) return pool;
  const auto [type, piece_values, limit] = key;
  const int64_t n_pieces = kPoolValues / piece_values;
  const auto piece_bytes = static_cast<size_t>(RowBytes(type, piece_values));
  pool.resize(static_cast<size_t>(n_pieces) * piece_bytes);
  const uint64_t seed = SeedOf(seed_, NameOf(type));
  std::vector<float> scratch(static_cast<size_t>(piece_values));
  for (size_t i = 0; i < static_cast<size_t>(n_pieces); ++i) {
    Store(type, seed, i * scratch.size(), limit, scratch, &pool[i * piece_bytes]);
  }
  return pool;
}

RandomWeights::Matrix RandomWeights::MakeMatrix(std::string_view name, DType type,
                                                int64_t row_values, float limit) {
  WEFT_CHECK(CanMake(type) && row_values % InfoOf(type).block_values == 0, "not a random matrix");
  Matrix matrix;
  matrix.type_ = type;
  matrix.limit_ = limit;
  matrix.row_values_ = static_cast<size_t>(row_values);
  matrix.seed_ = SeedOf(seed_, name);
  if (row_values >= 2 * kPieceValues) {
    const int64_t piece_values = std::gcd(row_values, kPieceValues);
    matrix.pool_ = &PoolOf({type, piece_values, limit});
    matrix.piece_bytes_ = static_cast<size_t>(RowBytes(type, piece_values));
  }
  return matrix;
}

void RandomWeights::Matrix::FillRow(int64_t row, std::span<std::byte> out) const {
  if (pool_ == nullptr) {
    std::vector<float> scratch(row_values_);
    Store(type_, seed_, static_cast<uint64_t>(row) * row_values_, limit_, scratch, out.data());
    return;
  }
  const size_t n_pieces = pool_->size() / piece_bytes_;
  const uint64_t row_seed = Scatter(seed_ + static_cast<uint64_t>(row));
  for (size_t at = 0; at < out.size(); at += piece_bytes_) {
    const size_t piece = Scatter(row_seed + at) % n_pieces;
    std::memcpy(&out[at], pool_->data() + piece * piece_bytes_, piece_bytes_);
  }
}

std::vector<float> RandomWeights::MakeVector(std::string_view name, int64_t n, float low,
                                             float high) const {
  std::vector<float> values(static_cast<size_t>(n));
  const uint64_t seed = SeedOf(seed_, name);
  for (size_t i = 0; i < values.size(); ++i) values[i] = RandomFloat(seed, i, low, high);
  return values;
}

}  // namespace weft::tools
