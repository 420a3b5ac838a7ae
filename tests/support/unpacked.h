// Reads files packed by zstd, for tests and benchmarks with large reference data.
#ifndef WEFT_TESTS_SUPPORT_UNPACKED_H_
#define WEFT_TESTS_SUPPORT_UNPACKED_H_

#include <zstd.h>

#include <string>

namespace weft::testing {

// The text that `packed` unpacks to; up to the error if it is broken.
inline std::string Unpacked(const std::string& packed) {
  std::string text;
  ZSTD_DCtx* const context = ZSTD_createDCtx();
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::string piece(size_t{1} << 20, '\0');
  while (in.pos < in.size) {
    ZSTD_outBuffer out{piece.data(), piece.size(), 0};
    if (ZSTD_isError(ZSTD_decompressStream(context, &out, &in))) break;
    text.append(piece, 0, out.pos);
  }
  ZSTD_freeDCtx(context);
  return text;
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_UNPACKED_H_
