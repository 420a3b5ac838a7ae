// The tokenizer of a model file in the form that Hugging Face's libraries read:
// tokenizer.json, tokenizer_config.json and config.json, in a zip archive.
//
// config.json says whose tokenizer it is: a gateway that does not find it looks for the model
// on a hub.
//
// A gateway that tokenizes for itself must come to the very ids that the model was
// trained with, so what cannot be said in that form is refused. It is only nearly exact for
// SentencePiece pieces of equal score (the form has a rank for each merge), for runs of
// line feeds that no merges lead to (Gemma 4), and for white space beyond ASCII beside
// tokens that swallow it (Phi-3).
//
// Pure functions; any thread. Large vocabularies take about a second.
#ifndef WEFT_GRPC_TOKENIZER_BUNDLE_H_
#define WEFT_GRPC_TOKENIZER_BUNDLE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/model_file.h"

namespace weft::serve {

struct TokenizerBundle {
  std::string zip;
  std::string sha256;  // of the zip, in lower-case hexadecimal digits
};

// `chat_template` may be empty. UNIMPLEMENTED for vocabularies of a kind that no model
// generates text with (WordPiece).
StatusOr<TokenizerBundle> BuildTokenizerBundle(const ModelFile& file,
                                               std::string_view chat_template,
                                               int64_t context_tokens);

// tokenizer.json alone.
StatusOr<std::string> TokenizerJson(const ModelFile& file);

}  // namespace weft::serve

#endif  // WEFT_GRPC_TOKENIZER_BUNDLE_H_
