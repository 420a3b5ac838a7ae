// Vectors in place of tokens (PromptPart) as clients send and keep them: one matrix, a vector per
// row, as 32-bit, 16-bit or bfloat16 floats.
//
//   NumPy        an array in C order; numpy.save
//   safetensors  a file of one tensor; safetensors.torch.save
//   PyTorch      a tensor in C order; torch.save. Its description is read, never run: anything but
//                a tensor is refused
//
// The bytes are not trusted. Pure functions; any thread.
#ifndef WEFT_ANSWER_ROW_FILE_H_
#define WEFT_ANSWER_ROW_FILE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::serve {

// The vectors, concatenated: at least one, of `width` finite numbers each. INVALID_ARGUMENT says in
// one sentence what the file contains instead.
StatusOr<std::vector<float>> ReadRowFile(std::string_view bytes, int64_t width);

// Standard base64, padded.
std::string EncodeBase64(std::string_view bytes);
// Decodes standard base64, padded or not; nullopt for anything else.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ROW_FILE_H_
