// Encoders of random weights, as make_model.h makes models that write text.
#ifndef WEFT_TOOLS_MAKE_ENCODER_H_
#define WEFT_TOOLS_MAKE_ENCODER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tools/make_model.h"

namespace weft::tools {

struct EncoderShape {
  std::string_view name;
  std::string_view architecture;
  int64_t layers;
  int64_t embd;
  int64_t ffn;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t vocab;
  int64_t context;
  int64_t pooling;     // as files number it: 0 none, 1 mean, 2 cls, 3 last, 4 scores
  int64_t window = 0;  // both ways together
  int64_t labels = 0;  // classifier outputs; 0: none
};

std::span<const EncoderShape> KnownEncoders();
// Null if there is none of that name.
const EncoderShape* FindEncoder(std::string_view name);

// Writes the file; the same arguments give the same bytes. REQUIRES: a shape of KnownEncoders(),
// but for another context.
StatusOr<MadeModel> MakeEncoder(const EncoderShape& shape, const MakeModelOptions& options,
                                const std::string& path);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_MAKE_ENCODER_H_
