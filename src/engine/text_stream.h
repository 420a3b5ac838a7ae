// The text side of one generated sequence: tokens in, whole characters out, stop
// strings found across token borders.
//
// Text that might be the beginning of a stop string is held back until the next
// tokens decide. One object per sequence; engine thread only.
#ifndef WEFT_ENGINE_TEXT_STREAM_H_
#define WEFT_ENGINE_TEXT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "tokenizer/tokenizer.h"

namespace weft {

Status ValidateStopStrings(const std::vector<std::string>& stop_strings);

class TextStream {
 public:
  // REQUIRES: ValidateStopStrings is OK. Of control tokens the `shown` ones are written out,
  // but for those that end a generation.
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop_strings,
             std::vector<TokenId> shown);

  struct Result {
    std::string text;                    // may be released now
    std::optional<std::string> stopped;  // the stop string that was completed
  };
  // Of several stop strings in the text, the one that begins first counts (the
  // longest of those that begin together); text from there on is dropped. Without
  // `may_stop` none begins in this token's text or before it.
  Result Push(TokenId token, bool may_stop = true);
  // The end without a stop string: everything that was held back.
  std::string Finish();

 private:
  // A stop string, and how much of it the text so far ends with. Knuth, Morris and Pratt:
  // the cost of a byte does not depend on what may have begun.
  struct Stop {
    explicit Stop(std::string stop_text);
    // True when the byte completes it.
    bool Push(char byte);

    std::string text;
    std::vector<uint16_t> shorter;  // by length matched: the next length to try
    size_t matched = 0;
  };

  bool Shows(TokenId token) const;
  Result Scan(std::string completed);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Stop> stops_;
  const std::vector<TokenId> shown_;
  StreamDecoder decoder_;
  std::string held_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TEXT_STREAM_H_
