// Vectors in place of tokens (PromptPart) as clients send and keep them: one matrix, a vector per
// row, as 32-bit, 16-bit or bfloat16 floats.
//
//   NumPy        an array in C order; numpy.save
//   safetensors  a file of one tensor; safetensors.torch.save
//   PyTorch      a tensor in C order; torch.save. Its description is read, never run: whatever is
//                more than a tensor is refused
//
// The bytes are not trusted. Pure functions; any thread.
#ifndef WEFT_HOST_ROW_FILE_H_
#define WEFT_HOST_ROW_FILE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::serve {

// The vectors, one after the other: `width` finite numbers each, at least one vector.
// INVALID_ARGUMENT in one sentence that says what there is instead.
StatusOr<std::vector<float>> ReadRowFile(std::string_view bytes, int64_t width);

// The bytes that standard base64 stands for, padded or not; nullopt if it is none.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace weft::serve

#endif  // WEFT_HOST_ROW_FILE_H_
