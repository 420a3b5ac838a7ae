// The types in which keys and values can be kept: one row per KvType, with its name and size.
#ifndef WEFT_ENGINE_KV_TYPE_H_
#define WEFT_ENGINE_KV_TYPE_H_

#include <algorithm>
#include <array>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "weft/options.h"

namespace weft {

struct KvTypeInfo {
  KvType type;
  std::string_view name;  // on command lines and in session files
  DType dtype;
};

inline constexpr std::array<KvTypeInfo, 4> kKvTypes = {{
    {KvType::kF32, "f32", DType::kF32},
    {KvType::kF16, "f16", DType::kF16},
    {KvType::kBF16, "bf16", DType::kBF16},
    {KvType::kQ8_0, "q8_0", DType::kQ8_0},
}};

inline const KvTypeInfo& KvInfo(KvType type) {
  return *std::find_if(kKvTypes.begin(), kKvTypes.end(),
                       [&](const KvTypeInfo& info) { return info.type == type; });
}

inline StatusOr<KvType> ParseKvType(std::string_view name) {
  for (const KvTypeInfo& info : kKvTypes) {
    if (info.name == name) return info.type;
  }
  return InvalidArgument("\"", Printable(name), "\" is not one of f32, f16, bf16, q8_0");
}

}  // namespace weft

#endif  // WEFT_ENGINE_KV_TYPE_H_
