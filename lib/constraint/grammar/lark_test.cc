#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/constraint.h"

namespace weft::constraint {
namespace {

std::shared_ptr<const TokenTable> Bytes() {
  std::vector<std::string> bytes;
  bytes.reserve(257);
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  bytes.emplace_back();
  return std::make_shared<const TokenTable>(std::move(bytes), std::vector<TokenId>{256});
}

class Lark {
 public:
  explicit Lark(std::string_view grammar) : made_(Constraint::FromGrammar(grammar, {}, Bytes())) {}
  bool Accepts(std::string_view text) const {
    EXPECT_TRUE(made_.ok()) << made_.status();
    if (!made_.ok()) return false;
    ConstraintState state = (*made_)->Begin();
    return state.AdvanceText(text) && state.CanEnd();
  }
  std::string error() const { return made_.ok() ? "" : std::string(Message(made_.status())); }

 private:
  const StatusOr<std::shared_ptr<const Constraint>> made_;
};

TEST(Lark, SumsWithSpaceThatIsIgnored) {
  const Lark sums(R"lark(
    // A rule that calls itself first.
    start: sum
    ?sum: product
        | sum "+" product   -> add
        | sum "-" product   -> sub
    ?product: atom (("*" | "/") atom)*
    atom: NUMBER | "-" atom | "(" sum ")"
    %import common.NUMBER
    %import common.WS -> SPACE
    %ignore SPACE
  )lark");
  for (const char* const text : {"1", "1+2", " 1 - 2*( 3 / -4.5 ) ", "((1))", "1 ", "-1-1-1"}) {
    EXPECT_TRUE(sums.Accepts(text)) << text;
  }
  for (const char* const text : {"", "1+", "+1", "(1", "1 2 +", "a"}) {
    EXPECT_FALSE(sums.Accepts(text)) << text;
  }
}

TEST(Lark, TerminalsOfTerminals) {
  const Lark names(R"(
start: pair ("," pair)* [";"]
pair: NAME "=" VALUE
NAME: ("a".."z" | "_") REST*
REST: "a".."z" | DIGIT | "_"
VALUE: /0x[0-9a-f]{2,4}/ | "True"i | DIGIT~2..3
%import common (DIGIT, INT)
)");
  for (const char* const text : {"a=12", "_x1=0xff,b=TRUE;", "a=123,b=tRuE"}) {
    EXPECT_TRUE(names.Accepts(text)) << text;
  }
  for (const char* const text : {"A=12", "a=1", "a=0xf", "a=12,", "a = 12", "a=1234"}) {
    EXPECT_FALSE(names.Accepts(text)) << text;
  }
}

TEST(Lark, CountsGroupsAndEscapes) {
  const Lark lines("start: line~2 (\"\\n\" line)?\nline: \"\\\"\" /[^\"\\/]+/ \"\\\"\"\n");
  EXPECT_TRUE(lines.Accepts("\"a\"\"b\""));
  EXPECT_TRUE(lines.Accepts("\"a\"\"b\"\n\"c\""));
  EXPECT_FALSE(lines.Accepts("\"a\""));
  EXPECT_FALSE(lines.Accepts("\"a/\"\"b\""));
}

TEST(Lark, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"start: a\n\nb: \"x\"", "line 1: a is used but not defined"},
      {"start: \"a", "line 1: a text that is not closed"},
      {"start: (\"a\"", "a group that is not closed"},
      {"start: \"a\"\nstart: \"b\"", "line 2: start is defined twice"},
      {"start: A\nA: b\nb: \"x\"", "line 2: a terminal cannot have the rule b"},
      {"start: A\nA: \"a\" A", "line 2: the terminal A has itself"},
      {"start: A~3..2\nA: \"a\"", "how many times"},
      {"start: start \"a\"", "line 1: a rule that never begins"},
      {"start: A\n%import python.A", "only terminals of common"},
      {"start: A\n%import common.NOTHING", "common has no NOTHING"},
      {"start: A\n%declare A", "%declare is not supported"},
      {"start: x{A}\nA: \"a\"", "templates"},
      {"start: /a/i", "flags of patterns"},
      {"start: /(?<=a)b/", "line 1"}};
  for (const auto& [grammar, expected] : cases) {
    const std::string error = Lark(grammar).error();
    EXPECT_NE(error.find(expected), std::string::npos) << grammar << ": " << error;
  }
}

TEST(Lark, TwoRulesThatCallEachOtherFirstAreRefused) {
  EXPECT_NE(Lark("start: a\na: b \"x\" | \"y\"\nb: a \"z\"").error(), "");
}

}  // namespace
}  // namespace weft::constraint
