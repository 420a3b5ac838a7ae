// Converts bytes to token ids and back, exactly as the model was trained.
//
// A Tokenizer is immutable after Load, may be used from any thread, and no longer needs the
// ModelFile. Encoding any text takes linear time (times a logarithm at most). Invalid UTF-8 never
// fails: SentencePiece vocabularies encode its bytes, the others read it as U+FFFD.
#ifndef WEFT_MODEL_TOKENIZER_TOKENIZER_H_
#define WEFT_MODEL_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "model/formats/model_file.h"

namespace weft {

class Tokenizer {
 public:
  struct EncodeOptions {
    // Add the tokens that the model wants around a text (BOS, EOS, CLS...), as its own
    // add_bos/add_eos settings say.
    bool add_special = false;
    // Recognise control tokens (<|im_end|>, ...) written out in the text. Use false for user input;
    // user-defined (non-control) tokens are always recognised.
    bool parse_special = false;
    // Stop early if a text clearly has more tokens than this: the result then has more, but not all
    // of them. 0: no limit.
    int64_t max_tokens = 0;
  };

  // Reads the tokenizer.ggml.* keys. An unknown model or pre-tokenizer, or an inconsistent
  // vocabulary, is an error that names the key.
  static StatusOr<std::shared_ptr<const Tokenizer>> Load(const ModelFile& file);

  ~Tokenizer();

  // REQUIRES: `text` is shorter than 1 GiB.
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const;

  // The text of a whole sequence: the pieces of the ids joined. Unless `render_special`, control
  // tokens are omitted. Removes a leading space that Encode would have added and, for vocabularies
  // made that way, spaces before punctuation; to get the exact bytes, join the results of Piece.
  std::string Decode(std::span<const TokenId> ids, bool render_special) const;

  // A token's bytes; for control tokens their text if `render_special`, else nothing. Ids out of
  // range give nothing.
  std::string Piece(TokenId id, bool render_special) const;

  int vocab_size() const;
  // The token as spelled in the vocabulary (with its escapes).
  std::string_view RawText(TokenId id) const;
  // The id of exactly this vocabulary entry, kNoToken if there is none.
  TokenId Find(std::string_view raw_text) const;
  bool IsControl(TokenId id) const;
  // Tokens that end a turn: EOS, EOT, EOM and similar ones.
  bool IsEndOfGeneration(TokenId id) const;
  const std::vector<TokenId>& EndsOfGeneration() const;  // ascending

  // kNoToken where the model has none.
  TokenId bos() const;
  TokenId eos() const;
  TokenId eot() const;
  TokenId unknown() const;
  TokenId padding() const;
  TokenId separator() const;  // between the texts of a pair
  bool adds_bos() const;
  bool adds_eos() const;
  bool adds_separator() const;  // before the second text of a pair, beside what ends the first
  // "llama", "gpt2", "bert": tokenizer.ggml.model; and tokenizer.ggml.pre.
  std::string_view model_name() const;
  std::string_view pre_name() const;

 private:
  class Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

// Turns a stream of tokens into a stream of text that never ends inside a character: bytes of an
// unfinished UTF-8 sequence are held back until it is complete, or known to be invalid (then each
// becomes U+FFFD if `replace_invalid`, else passes through raw). The stream continues a text, so
// nothing is stripped or tidied: its output equals the joined Pieces, however the text is split
// into tokens. One object per stream; one thread.
class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool render_special,
                bool replace_invalid = true);

  // The text completed by `id`; may be empty.
  std::string Push(TokenId id);
  // The bytes held back, at the end of the stream.
  std::string Finish();

 private:
  std::string Take(bool at_end);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool render_special_;
  bool replace_invalid_;
  std::string pending_;
};

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_TOKENIZER_H_
