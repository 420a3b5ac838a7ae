#include "compute/kernels/kv_types.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/strings.h"

namespace weft {

std::vector<KvTypes> LevelKvTypes() {
  std::vector<KvTypes> all;
  for (const DType keys : {DType::kQ8_0, DType::kQ5_0, DType::kQ4_0}) {
    for (const DType values : {DType::kQ8_0, DType::kQ5_0, DType::kQ4_0}) {
      all.emplace_back(keys, values);
    }
  }
  return all;
}

std::vector<KvTypes> WithLevelKvTypes(std::vector<KvTypes> types) {
  for (const KvTypes& type : LevelKvTypes()) types.push_back(type);
  return types;
}

std::string NameOf(KvTypes types) {
  if (types.keys == types.values) return std::string(NameOf(types.keys));
  return StrCat(NameOf(types.keys), ",", NameOf(types.values));
}

void RotateHead(float* x, int64_t n) {
  for (int64_t run = 0; n > 0; x += run, n -= run) {
    run = RotatedRun(n);
    for (int64_t step = 1; step < run; step *= 2) {
      for (int64_t i = 0; i < run; ++i) {
        if ((i & step) != 0) continue;
        const float a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
    const float norm = 1.0f / std::sqrt(static_cast<float>(run));
    for (int64_t i = 0; i < run; ++i) x[i] *= norm;
  }
}

void RoundAsStored(DType type, float* x, int64_t n) {
  constexpr int64_t kGroup = 32;
  const auto most = static_cast<float>(MaxLevel(LevelBits(type)));
  RotateHead(x, n);
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    const int64_t end = std::min(n, begin + kGroup);
    float top = 0;
    for (int64_t i = begin; i < end; ++i) top = std::max(top, std::fabs(x[i]));
    const float scale = F16ToF32(F32ToF16(std::min(top / most, 65504.0f)));
    const float half_inverse = scale > 0 ? 0.5f / scale : 0.0f;
    for (int64_t i = begin; i < end; ++i) {
      const float at = std::clamp(std::fma(x[i], half_inverse, 0.5f * most), 0.0f, most);
      x[i] = (2 * std::nearbyint(at) - most) * scale;
    }
  }
  RotateHead(x, n);
}

}  // namespace weft
