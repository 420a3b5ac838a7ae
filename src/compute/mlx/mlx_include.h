// MLX's headers, its short name here, and the conversion of its exceptions to statuses.
#ifndef WEFT_COMPUTE_MLX_MLX_INCLUDE_H_
#define WEFT_COMPUTE_MLX_MLX_INCLUDE_H_

#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/dtype.h"
#include "base/status.h"
#include "mlx/array.h"
#include "mlx/dtype.h"
#include "mlx/fast.h"
#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace weft::mlx {

namespace mx = ::mlx::core;

// MLX's sizes are 32-bit.
inline int Size(int64_t n) {
  WEFT_CHECK(n >= 0 && n <= INT32_MAX, "an array's dimensions fit 32 bits");
  return static_cast<int>(n);
}

// The MLX type for floats of a file's type: halves stay as they are, all others become F32.
inline mx::Dtype FloatTypeOf(DType type) {
  if (type == DType::kF16) return mx::float16;
  return type == DType::kBF16 ? mx::bfloat16 : mx::float32;
}

// An array of host values, copied.
template <typename T>
mx::array FromHost(std::span<const T> values, mx::Shape shape) {
  return mx::array(values.data(), std::move(shape));
}

// Runs fn(), which returns a Status or a StatusOr; an exception becomes a status, too.
template <typename Fn>
auto WithoutExceptions(std::string_view what, Fn fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for ", what, " of the mlx backend");
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    // MLX throws its own exceptions when it runs out of memory.
    if (text.find("malloc") != text.npos || text.find("allocate") != text.npos) {
      return ResourceExhausted("no memory for ", what,
                               " of the mlx backend: ", Printable(text, 200));
    }
    return Internal(what, " of the mlx backend failed: ", Printable(text, 200));
  }
}

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_MLX_INCLUDE_H_
