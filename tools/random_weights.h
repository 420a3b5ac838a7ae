// Random weights in every stored type, as fast as a disk takes them.
//
// Quantizing billions of values would take minutes. Instead a pool of random
// values is quantized once per type and scale, and rows are put together from
// pieces of the pool, chosen at random. Pieces are whole blocks, so each value
// decodes as it did in the pool, and there are millions of different rows.
// Rows too short for that are quantized one by one.
#ifndef WEFT_TOOLS_RANDOM_WEIGHTS_H_
#define WEFT_TOOLS_RANDOM_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/dtype.h"

namespace weft::tools {

// True for the types that RandomWeights can produce.
bool CanMake(DType type);

// What a matrix of this type and limit has to be multiplied by, in a tensor of its own: 1 unless
// the type's scales have too little range (NVFP4).
float FactorOf(DType type, float limit);

// A matrix depends only on the seed, its name, type, row length and scale. Not thread-safe.
class RandomWeights {
 public:
  explicit RandomWeights(uint64_t seed) : seed_(seed) {}

  class Matrix {
   public:
    // Writes row `row`. REQUIRES: `out` has RowBytes() of the matrix's rows.
    void FillRow(int64_t row, std::span<std::byte> out) const;

   private:
    friend class RandomWeights;
    DType type_;
    float limit_;
    size_t row_values_;
    uint64_t seed_;
    const std::vector<std::byte>* pool_ = nullptr;  // null: rows are too short
    size_t piece_bytes_ = 0;
  };

  // Rows of `row_values` values, even in [-limit, limit). Lives as long as this
  // object. REQUIRES: CanMake(type), row_values is a multiple of the block.
  Matrix MakeMatrix(std::string_view name, DType type, int64_t row_values, float limit);

  // `n` float32 values, even in [low, high): norms, biases.
  std::vector<float> MakeVector(std::string_view name, int64_t n, float low, float high) const;

 private:
  using PoolKey = std::tuple<DType, int64_t, float>;  // type, values per piece, limit
  const std::vector<std::byte>& PoolOf(const PoolKey& key);

  const uint64_t seed_;
  std::map<PoolKey, std::vector<std::byte>> pools_;  // nodes stay where they are
};

}  // namespace weft::tools

#endif  // WEFT_TOOLS_RANDOM_WEIGHTS_H_
