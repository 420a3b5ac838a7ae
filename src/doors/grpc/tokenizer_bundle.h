// A model file's tokenizer in the form read by Hugging Face's libraries: tokenizer.json,
// tokenizer_config.json and config.json, in a zip archive.
//
// config.json identifies the tokenizer's model: a gateway that does not find it looks for the model
// on a hub.
//
// A gateway that tokenizes must produce exactly the ids the model was trained with, so anything
// that this form cannot express is refused. It is not quite exact for SentencePiece pieces of equal
// score (the form ranks every merge), for runs of line feeds that no merges lead to (Gemma 4), and
// for non-ASCII white space next to tokens that swallow it (Phi-3).
//
// Pure functions; any thread. Large vocabularies take about a second.
#ifndef WEFT_DOORS_GRPC_TOKENIZER_BUNDLE_H_
#define WEFT_DOORS_GRPC_TOKENIZER_BUNDLE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/formats/model_file.h"

namespace weft::serve {

struct TokenizerBundle {
  std::string zip;
  std::string sha256;  // the zip's, in lower-case hexadecimal
};

// `chat_template` may be empty. UNIMPLEMENTED for vocabularies that no generative model uses
// (WordPiece).
StatusOr<TokenizerBundle> BuildTokenizerBundle(const ModelFile& file,
                                               std::string_view chat_template,
                                               int64_t context_tokens);

// Only tokenizer.json.
StatusOr<std::string> TokenizerJson(const ModelFile& file);

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_TOKENIZER_BUNDLE_H_
