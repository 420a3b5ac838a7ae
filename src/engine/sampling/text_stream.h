// Turns the tokens of one generated sequence into text: releases whole characters, and finds stop
// strings across token boundaries.
//
// Text that might begin a stop string is held back until further tokens decide. One object per
// sequence; engine thread only.
#ifndef WEFT_ENGINE_SAMPLING_TEXT_STREAM_H_
#define WEFT_ENGINE_SAMPLING_TEXT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {

Status ValidateStopStrings(const std::vector<std::string>& stop_strings);

class TextStream {
 public:
  // REQUIRES: ValidateStopStrings is OK. Control tokens in `shown` appear in the text, except
  // end-of-generation tokens.
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop_strings,
             std::vector<TokenId> shown);

  struct Result {
    std::string text;                    // can be released now
    std::optional<std::string> stopped;  // the completed stop string
  };
  // If the text contains several stop strings, the one that begins first counts (the longest of
  // those that begin together); text from there on is dropped. If `may_stop` is false, no stop
  // string may begin in or before this token's text.
  Result Push(TokenId token, bool may_stop = true);
  // Ends without a stop string: returns everything held back.
  std::string Finish();

 private:
  // A stop string, and how much of it the text currently ends with. Knuth-Morris-Pratt: the cost
  // per byte does not depend on how many partial matches there are.
  struct Stop {
    explicit Stop(std::string stop_text);
    // True if the byte completes it.
    bool Push(char byte);

    std::string text;
    std::vector<uint16_t> shorter;  // by matched length: the next length to try
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

#endif  // WEFT_ENGINE_SAMPLING_TEXT_STREAM_H_
