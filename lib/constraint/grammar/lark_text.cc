#include "constraint/grammar/lark_text.h"

#include <memory>
#include <utility>

#include "base/strings.h"
#include "constraint/grammar/grammar.h"

namespace weft::constraint {
namespace {

constexpr int64_t kMaxRepeats = 100'000;
// The costs of a definition and of each of its items in steps of work, without their parts.
constexpr int64_t kDefinitionWork = 64, kItemWork = 8;

// The patterns of %import common.NAME.
const std::map<std::string, std::string, std::less<>>& CommonTerminals() {
  static const auto* const terminals = new std::map<std::string, std::string, std::less<>>{
      {"DIGIT", "[0-9]"},
      {"HEXDIGIT", "[0-9a-fA-F]"},
      {"INT", "[0-9]+"},
      {"SIGNED_INT", "[+-]?[0-9]+"},
      {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
      {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
      {"SIGNED_FLOAT",
       "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
      {"NUMBER", "([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
      {"SIGNED_NUMBER", "[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
      {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\.)*\""},
      {"LCASE_LETTER", "[a-z]"},
      {"UCASE_LETTER", "[A-Z]"},
      {"LETTER", "[A-Za-z]"},
      {"WORD", "[A-Za-z]+"},
      {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
      {"WS_INLINE", "[ \\t]+"},
      {"WS", "[ \\t\\f\\r\\n]+"},
      {"CR", "\\r"},
      {"LF", "\\n"},
      {"NEWLINE", "(\\r?\\n)+"},
      {"SH_COMMENT", "#[^\\n]*"},
      {"CPP_COMMENT", "//[^\\n]*"},
      {"SQL_COMMENT", "--[^\\n]*"}};
  return *terminals;
}

bool IsNameChar(char c) {
  c = AsciiLower(c);
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

class LarkReader {
 public:
  LarkReader(std::string_view text, RegexPool* pool, LarkText* out)
      : text_(text), pool_(*pool), out_(*out) {}

  Status Read() {
    for (SkipLines(); at_ < text_.size(); SkipLines()) {
      pool_.budget().Spend(kDefinitionWork);
      if (pool_.budget().exhausted()) return TooMuchToCompile();
      if (Take("%")) {
        WEFT_RETURN_IF_ERROR(ReadStatement());
      } else {
        WEFT_RETURN_IF_ERROR(ReadDefinition());
      }
    }
    return OkStatus();
  }

 private:
  Status Wrong(std::string_view what) const { return out_.Wrong(at_, what); }
  bool Take(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  char Next() const { return at_ < text_.size() ? text_[at_] : '\n'; }
  void SkipComment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
      } else if (text_[at_] == '#' || text_.substr(at_, 2) == "//") {
        SkipComment();
      } else {
        break;
      }
    }
  }
  void SkipLines() {
    for (SkipSpace(); at_ < text_.size() && text_[at_] == '\n'; SkipSpace()) ++at_;
  }
  std::string ReadName() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  Status ReadStatement() {
    const std::string what = ReadName();
    SkipSpace();
    if (what == "ignore") {
      LarkNode node;
      node.kind = LarkNode::Kind::kGroup;
      node.at = at_;
      WEFT_RETURN_IF_ERROR(ReadAlternatives(&node.group, 0));
      out_.ignored.push_back(std::move(node));
      return OkStatus();
    }
    if (what != "import") return Wrong(StrCat("%", what, " is not supported"));
    return ReadImport();
  }

  // %import common.NAME, %import common.NAME -> OTHER, %import common (NAME, NAME)
  Status ReadImport() {
    if (!Take("common")) return Wrong("only terminals of common can be imported");
    SkipSpace();
    if (Take("(")) {
      do {
        SkipSpace();
        const std::string name = ReadName();
        WEFT_RETURN_IF_ERROR(Import(name, name));
        SkipSpace();
      } while (Take(","));
      return Take(")") ? OkStatus() : Wrong("a \"(\" that is not closed");
    }
    if (!Take(".")) return Wrong("%import common is followed by a point and a name");
    const std::string name = ReadName();
    SkipSpace();
    std::string as = name;
    if (Take("->")) {
      SkipSpace();
      as = ReadName();
    }
    return Import(name, as);
  }
  Status Import(const std::string& name, const std::string& as) {
    const auto found = CommonTerminals().find(name);
    if (found == CommonTerminals().end()) return Wrong(StrCat("common has no ", Printable(name)));
    LarkNode node;
    node.kind = LarkNode::Kind::kPattern;
    node.text = found->second;
    node.at = at_;
    out_.terminals[as] = {.body = {{std::move(node)}}, .at = at_};
    return OkStatus();
  }

  Status ReadDefinition() {
    while (Take("?") || Take("!")) {
    }
    const size_t at = at_;
    const std::string name = ReadName();
    if (name.empty()) return Wrong("a definition begins with its name");
    if (Next() == '{' || Next() == '[') return Wrong("templates and attributes are not supported");
    if (Take(".")) {  // a priority
      Take("-");
      while (Next() >= '0' && Next() <= '9') ++at_;
    }
    SkipSpace();
    if (!Take(":")) return Wrong("a name is followed by a colon");
    auto& definitions = IsLarkTerminal(name) ? out_.terminals : out_.rules;
    LarkDefinition definition{.body = {}, .at = at};
    WEFT_RETURN_IF_ERROR(ReadAlternatives(&definition.body, 0));
    if (!definitions.emplace(name, std::move(definition)).second) {
      return out_.Wrong(at, StrCat(Printable(name), " is defined twice"));
    }
    SkipSpace();
    return Next() == '\n' ? OkStatus() : Wrong("a definition ends with its line");
  }

  // A line that starts with "|" continues the one before.
  bool TakeBar(int depth) {
    const size_t before = at_;
    SkipLines();
    if (Take("|")) return true;
    if (depth == 0) at_ = before;
    return false;
  }

  Status ReadAlternatives(LarkAlternatives* alternatives, int depth) {
    if (depth > kMaxLarkDepth) return Wrong("groups are nested too deep");
    TakeBar(depth);  // may also precede the first one
    do {
      LarkSequence& sequence = alternatives->emplace_back();
      WEFT_RETURN_IF_ERROR(ReadSequence(&sequence, depth));
    } while (TakeBar(depth));
    return OkStatus();
  }

  Status ReadSequence(LarkSequence* sequence, int depth) {
    for (;;) {
      if (depth > 0) {
        SkipLines();
      } else {
        SkipSpace();
      }
      if (Take("->")) {  // the name of a tree node, which is ignored
        SkipSpace();
        ReadName();
        continue;
      }
      const char c = Next();
      if (at_ >= text_.size() || c == '\n' || c == '|' || c == ')' || c == ']') return OkStatus();
      pool_.budget().Spend(kItemWork);
      if (pool_.budget().exhausted()) return TooMuchToCompile();
      LarkNode node;
      node.at = at_;
      WEFT_RETURN_IF_ERROR(ReadItem(&node, depth));
      WEFT_RETURN_IF_ERROR(ReadCount(&node));
      sequence->push_back(std::move(node));
    }
  }

  Status ReadItem(LarkNode* node, int depth) {
    if (Next() == '"') return ReadText(node);
    if (Next() == '/') return ReadPattern(node);
    const bool is_optional = Next() == '[';
    if (is_optional || Next() == '(') {
      ++at_;
      node->kind = LarkNode::Kind::kGroup;
      WEFT_RETURN_IF_ERROR(ReadAlternatives(&node->group, depth + 1));
      SkipLines();
      if (!Take(is_optional ? "]" : ")")) return Wrong("a group that is not closed");
      if (is_optional) node->least = 0;
      return OkStatus();
    }
    node->text = ReadName();
    if (node->text.empty()) return Wrong("something that is no part of a rule");
    if (Next() == '{') return Wrong("templates are not supported");
    return OkStatus();
  }

  Status ReadQuoted(std::string* out) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      if (text_[at_] != '\\') {
        out->push_back(text_[at_++]);
        continue;
      }
      if (at_ + 1 >= text_.size()) break;
      const char c = text_[at_ + 1];
      const std::string_view known = "nrtf\\\"/'", meant = "\n\r\t\f\\\"/'";
      const size_t which = known.find(c);
      if (which == std::string_view::npos) return Wrong("an unknown escape");
      out->push_back(meant[which]);
      at_ += 2;
    }
    return Take("\"") ? OkStatus() : Wrong("a text that is not closed");
  }

  Status ReadText(LarkNode* node) {
    node->kind = LarkNode::Kind::kText;
    WEFT_RETURN_IF_ERROR(ReadQuoted(&node->text));
    if (Take("..")) {
      node->kind = LarkNode::Kind::kRange;
      if (Next() != '"') return Wrong("a range ends with a text");
      return ReadQuoted(&node->last);
    }
    if (Next() == 'i' && (at_ + 1 >= text_.size() || !IsNameChar(text_[at_ + 1]))) {
      ++at_;
      node->any_case = true;
    }
    return OkStatus();
  }

  Status ReadPattern(LarkNode* node) {
    node->kind = LarkNode::Kind::kPattern;
    for (++at_; at_ < text_.size() && text_[at_] != '/' && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        if (text_[at_ + 1] != '/') node->text.push_back('\\');
        ++at_;
      }
      node->text.push_back(text_[at_]);
    }
    if (!Take("/")) return Wrong("a pattern that is not closed");
    if (std::string_view("imslux").find(Next()) != std::string_view::npos) {
      return Wrong("flags of patterns are not supported");
    }
    return OkStatus();
  }

  Status ReadCount(LarkNode* node) {
    if (Take("?")) {
      node->least = 0;
    } else if (Take("*")) {
      node->least = 0;
      node->most = kUnlimited;
    } else if (Take("+")) {
      node->most = kUnlimited;
    } else if (Take("~")) {
      SkipSpace();
      int64_t least = 0, most = 0;
      bool good = ReadNumber(&least);
      most = least;
      if (good && Take("..")) good = ReadNumber(&most);
      if (!good || least > most || most > kMaxRepeats)
        return Wrong("~ does not say how many times");
      node->least = static_cast<int32_t>(least);
      node->most = static_cast<int32_t>(most);
    }
    return OkStatus();
  }
  bool ReadNumber(int64_t* number) {
    const size_t begin = at_;
    while (Next() >= '0' && Next() <= '9') ++at_;
    return ParseInt64(text_.substr(begin, at_ - begin), number);
  }

  const std::string_view text_;
  RegexPool& pool_;
  LarkText& out_;
  size_t at_ = 0;
};

}  // namespace

bool IsLarkTerminal(std::string_view name) {
  const size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

Status LarkText::Wrong(size_t at, std::string_view what) const {
  int64_t line = 1;
  for (const char c : text.substr(0, at)) line += c == '\n';
  return InvalidArgument("line ", line, ": ", what);
}

StatusOr<LarkText> ReadLarkText(std::string_view text, RegexPool* pool) {
  LarkText read{.text = text, .rules = {}, .terminals = {}, .ignored = {}};
  WEFT_RETURN_IF_ERROR(LarkReader(text, pool, &read).Read());
  return read;
}

}  // namespace weft::constraint
