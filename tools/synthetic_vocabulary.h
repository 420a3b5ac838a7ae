// Vocabularies of any size that are made up, but valid: every piece is unique
// and can be built from smaller ones, every byte has a token, and the control
// tokens of a chat are there. Text of Latin letters becomes pieces of up to four
// letters.
#ifndef WEFT_TOOLS_SYNTHETIC_VOCABULARY_H_
#define WEFT_TOOLS_SYNTHETIC_VOCABULARY_H_

#include <cstdint>

#include "base/status.h"
#include "model/formats/gguf_writer.h"
#include "tools/model_shapes.h"

namespace weft::tools {

// Adds the tokenizer.* keys of shape.vocab tokens. The error names the sizes
// that are possible.
Status AddVocabulary(const ModelShape& shape, GgufWriter* writer);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_SYNTHETIC_VOCABULARY_H_
