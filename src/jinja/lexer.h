// A template's text as tokens, white space control done: trim_blocks and lstrip_blocks
// are on, as everywhere chat templates are rendered.
#ifndef WEFT_JINJA_LEXER_H_
#define WEFT_JINJA_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/ast.h"

namespace weft::jinja {

enum class TokenKind : uint8_t {
  kText,        // template text, as it is printed
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

// The last token is kEnd. Errors say where.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// "chat template, line 3, column 7: " before an error's text.
Status AtPosition(const Position& at, const Status& status);

}  // namespace weft::jinja

#endif  // WEFT_JINJA_LEXER_H_
