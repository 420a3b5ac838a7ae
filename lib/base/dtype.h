// The element types a model file can hold, and the block layout of each.
//
// Enum values are GGUF type numbers. Knowing a type's layout (enough to check and list a file) does
// not imply being able to compute with it: see compute/kernels/quants.h for that.
#ifndef WEFT_BASE_DTYPE_H_
#define WEFT_BASE_DTYPE_H_

#include <cstdint>
#include <string_view>

namespace weft {

enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct DTypeInfo {
  DType type;
  std::string_view name;  // conventional spelling: "Q4_K"
  int64_t block_values;   // values per block; rows are whole blocks
  int64_t block_bytes;
};

// Null if `number` is not one of the types above.
const DTypeInfo* FindDType(uint32_t number);
const DTypeInfo* FindDTypeByName(std::string_view name);  // any letter case

// REQUIRES: `type` is one of the enumerators.
const DTypeInfo& InfoOf(DType type);

inline std::string_view NameOf(DType type) { return InfoOf(type).name; }

// Bytes of a row of `n` values. REQUIRES: n is a multiple of the block.
inline int64_t RowBytes(DType type, int64_t n) {
  const DTypeInfo& info = InfoOf(type);
  return n / info.block_values * info.block_bytes;
}

}  // namespace weft

#endif  // WEFT_BASE_DTYPE_H_
