// The types in which keys and values can be kept: one row per KvType, with its name.
#ifndef WEFT_ENGINE_KV_TYPE_H_
#define WEFT_ENGINE_KV_TYPE_H_

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "base/strings.h"
#include "compute/state_store.h"
#include "weft/options.h"

namespace weft {

struct KvTypeInfo {
  KvType type;
  std::string_view name;  // on command lines and in session files
  DType dtype;
};

inline constexpr std::array<KvTypeInfo, 6> kKvTypes = {{
    {KvType::kF32, "f32", DType::kF32},
    {KvType::kF16, "f16", DType::kF16},
    {KvType::kBF16, "bf16", DType::kBF16},
    {KvType::kQ8_0, "q8_0", DType::kQ8_0},
    {KvType::kQ5_0, "q5_0", DType::kQ5_0},
    {KvType::kQ4_0, "q4_0", DType::kQ4_0},
}};

inline const KvTypeInfo& KvInfo(KvType type) {
  return *std::find_if(kKvTypes.begin(), kKvTypes.end(),
                       [&](const KvTypeInfo& info) { return info.type == type; });
}

// The types of keys and values.
struct KvPair {
  KvType keys = KvType::kF16, values = KvType::kF16;
};

inline KvPair KvPairOf(const EngineOptions& options) {
  return {options.kv_type, options.kv_values.value_or(options.kv_type)};
}
inline KvTypes KvTypesOf(const EngineOptions& options) {
  const KvPair pair = KvPairOf(options);
  return {KvInfo(pair.keys).dtype, KvInfo(pair.values).dtype};
}
// "f16", or "q5_0,q4_0".
inline std::string KvNameOf(const EngineOptions& options) {
  const KvPair pair = KvPairOf(options);
  const std::string_view keys = KvInfo(pair.keys).name, values = KvInfo(pair.values).name;
  return pair.keys == pair.values ? std::string(keys) : StrCat(keys, ",", values);
}

// All that ParseKvType takes.
inline std::vector<std::string> KvTypeNames() {
  std::vector<std::string> names;
  names.reserve(std::size(kKvTypes));
  for (const KvTypeInfo& info : kKvTypes) names.emplace_back(info.name);
  return names;
}

inline StatusOr<KvType> ParseKvType(std::string_view name) {
  for (const KvTypeInfo& info : kKvTypes) {
    if (info.name == name) return info.type;
  }
  return InvalidArgument("\"", Printable(name), "\" is not one of ", StrJoin(KvTypeNames(), ", "));
}

// One type for both, or two with a comma.
inline StatusOr<KvPair> ParseKvTypes(std::string_view text) {
  const size_t comma = text.find(',');
  WEFT_ASSIGN_OR_RETURN(const KvType keys, ParseKvType(text.substr(0, comma)));
  if (comma == std::string_view::npos) return KvPair{keys, keys};
  WEFT_ASSIGN_OR_RETURN(const KvType values, ParseKvType(text.substr(comma + 1)));
  const bool levels = LevelBits(KvInfo(keys).dtype) > 0 && LevelBits(KvInfo(values).dtype) > 0;
  if (keys == values || levels) return KvPair{keys, values};
  return InvalidArgument("\"", Printable(text),
                         "\" cannot be combined; give two of q8_0, q5_0 and ",
                         "q4_0, or one type for keys and values");
}

}  // namespace weft

#endif  // WEFT_ENGINE_KV_TYPE_H_
