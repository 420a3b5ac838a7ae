// Splits a template into tokens and applies white space control: trim_blocks and lstrip_blocks are
// on, as usual for chat templates.
#ifndef WEFT_JINJA_LEXER_H_
#define WEFT_JINJA_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/ast.h"

namespace weft::jinja {

enum class TokenKind : uint8_t {
  kText,        // literal template text, as printed
  kBlockBegin,  // {%
  kBlockEnd,
  kPrintBegin,  // {{
  kPrintEnd,
  kName,
  kString,  // text is the value
  kInteger,
  kFloat,
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenKind kind;
  Position at;
  std::string text;
  int64_t integer = 0;
  double real = 0;

  bool Is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
};

// The last token is kEnd. Errors name the position.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// Prefixes an error with "chat template, line 3, column 7: ".
Status AtPosition(const Position& at, const Status& status);

}  // namespace weft::jinja

#endif  // WEFT_JINJA_LEXER_H_
