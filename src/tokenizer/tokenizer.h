// Bytes to token ids and back, as the model was trained.
//
// A Tokenizer is immutable after Load and may be used from any thread; it needs
// the ModelFile no longer. Encoding takes time linear in the text (times a
// logarithm at most), whatever the text. Invalid UTF-8 never fails: SentencePiece
// vocabularies encode its bytes, the others read it as U+FFFD.
#ifndef WEFT_TOKENIZER_TOKENIZER_H_
#define WEFT_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "formats/model_file.h"

namespace weft {

class Tokenizer {
 public:
  struct EncodeOptions {
    // Put the tokens that the model wants around a text (BOS, EOS, CLS...),
    // according to the model's own add_bos/add_eos settings.
    bool add_special = false;
    // Recognise control tokens (<|im_end|>, ...) written out in the text. False
    // for anything a user typed; user-defined (non-control) tokens are always
    // recognised.
    bool parse_special = false;
    // A text that has clearly more tokens is not encoded to its end: what is returned then
    // are more than these, and not all. 0: every text is.
    int64_t most_tokens = 0;
  };

  // Reads the tokenizer.ggml.* keys. An unknown model or pre-tokenizer, or a
  // vocabulary that contradicts itself, is an error that names the key.
  static StatusOr<std::shared_ptr<const Tokenizer>> Load(const ModelFile& file);

  ~Tokenizer();

  // REQUIRES: `text` is shorter than 1 GiB.
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const;

  // The text of a whole sequence: the pieces of the ids joined. With
  // `render_special` false control tokens give nothing. A leading space that Encode
  // would have added is removed, and where the vocabulary was made so, spaces
  // before punctuation are tidied away; for the bytes alone join Piece.
  std::string Decode(std::span<const TokenId> ids, bool render_special) const;

  // The bytes one token stands for; control tokens give their text when
  // `render_special`, else nothing. Ids out of range give nothing.
  std::string Piece(TokenId id, bool render_special) const;

  int vocab_size() const;
  // The token as the vocabulary writes it (with its escapes).
  std::string_view RawText(TokenId id) const;
  // The id of exactly this vocabulary entry, kNoToken when there is none.
  TokenId Find(std::string_view raw_text) const;
  bool IsControl(TokenId id) const;
  // Tokens that end a turn: EOS, EOT, EOM and their kin.
  bool IsEndOfGeneration(TokenId id) const;
  const std::vector<TokenId>& EndsOfGeneration() const;  // ascending

  // kNoToken where the model has none.
  TokenId bos() const;
  TokenId eos() const;
  TokenId eot() const;
  TokenId unknown() const;
  TokenId padding() const;
  bool adds_bos() const;
  bool adds_eos() const;
  // "llama", "gpt2", "bert": tokenizer.ggml.model; and tokenizer.ggml.pre.
  std::string_view model_name() const;
  std::string_view pre_name() const;

 private:
  class Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

// Turns a stream of tokens into a stream of text that never ends inside a
// character: bytes of an unfinished UTF-8 sequence are held back until it is
// complete, or known to be invalid (then each becomes U+FFFD when `replace_invalid`,
// else passes through raw). The stream continues a text, so nothing is stripped or
// tidied: its output is that of Piece, joined, however it is cut into tokens. One
// object per stream; one thread.
class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool render_special,
                bool replace_invalid = true);

  // The text that `id` completes; may be empty.
  std::string Push(TokenId id);
  // What was held back, at the end of the stream.
  std::string Finish();

 private:
  std::string Take(bool at_end);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool render_special_;
  bool replace_invalid_;
  std::string pending_;
};

}  // namespace weft

#endif  // WEFT_TOKENIZER_TOKENIZER_H_
