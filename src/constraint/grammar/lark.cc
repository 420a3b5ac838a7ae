#include "constraint/grammar/lark.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "constraint/grammar/gbnf.h"
#include "constraint/regex/characters.h"
#include "constraint/regex/pattern.h"

namespace weft::constraint {
namespace {

constexpr int kMostDepth = 200;
constexpr int64_t kMostRepeats = 100'000;
// What a definition, and each of its items, counts for, in steps of work, besides what it is made
// of.
constexpr int64_t kDefinitionWork = 64, kItemWork = 8;

// What %import common.NAME means.
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

struct Node;
using Sequence = std::vector<Node>;
using Alternatives = std::vector<Sequence>;

struct Node {
  enum class Kind : uint8_t { kName, kText, kPattern, kRange, kGroup };
  Kind kind = Kind::kName;
  std::string text;  // a name, a text, a pattern, the first of a range
  std::string last;  // of a range
  bool any_case = false;
  Alternatives group;
  int32_t least = 1, most = 1;  // how many times
  size_t at = 0;                // in the grammar's text
};

struct Definition {
  Alternatives body;
  size_t at = 0;
};

bool IsNameChar(char c) {
  c = AsciiLower(c);
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

bool IsTerminalName(std::string_view name) {
  const size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

// --- reading ----------------------------------------------------------------------------------

class LarkReader {
 public:
  LarkReader(std::string_view text, RegexPool* pool) : text_(text), pool_(*pool) {}

  Status Read() {
    for (SkipLines(); at_ < text_.size(); SkipLines()) {
      pool_.Charge(kDefinitionWork);
      if (pool_.exhausted()) return TooMuchToCompile();
      if (Take("%")) {
        WEFT_RETURN_IF_ERROR(ReadStatement());
      } else {
        WEFT_RETURN_IF_ERROR(ReadDefinition());
      }
    }
    return OkStatus();
  }

  Status Wrong(size_t at, std::string_view what) const {
    int64_t line = 1;
    for (const char c : text_.substr(0, at)) line += c == '\n';
    return InvalidArgument("line ", line, ": ", what);
  }

  std::map<std::string, Definition> rules, terminals;
  std::vector<Node> ignored;

 private:
  Status Wrong(std::string_view what) const { return Wrong(at_, what); }
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
      Node node;
      node.kind = Node::Kind::kGroup;
      node.at = at_;
      WEFT_RETURN_IF_ERROR(ReadAlternatives(&node.group, 0));
      ignored.push_back(std::move(node));
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
    Node node;
    node.kind = Node::Kind::kPattern;
    node.text = found->second;
    node.at = at_;
    terminals[as] = {.body = {{std::move(node)}}, .at = at_};
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
    auto& definitions = IsTerminalName(name) ? terminals : rules;
    Definition definition{.body = {}, .at = at};
    WEFT_RETURN_IF_ERROR(ReadAlternatives(&definition.body, 0));
    if (!definitions.emplace(name, std::move(definition)).second) {
      return Wrong(at, StrCat(Printable(name), " is defined twice"));
    }
    SkipSpace();
    return Next() == '\n' ? OkStatus() : Wrong("a definition ends with its line");
  }

  // A line that begins with "|" goes on with the one before.
  bool TakeBar(int depth) {
    const size_t before = at_;
    SkipLines();
    if (Take("|")) return true;
    if (depth == 0) at_ = before;
    return false;
  }

  Status ReadAlternatives(Alternatives* alternatives, int depth) {
    if (depth > kMostDepth) return Wrong("groups are nested too deep");
    TakeBar(depth);  // before the first one, too
    do {
      Sequence& sequence = alternatives->emplace_back();
      WEFT_RETURN_IF_ERROR(ReadSequence(&sequence, depth));
    } while (TakeBar(depth));
    return OkStatus();
  }

  Status ReadSequence(Sequence* sequence, int depth) {
    for (;;) {
      if (depth > 0) {
        SkipLines();
      } else {
        SkipSpace();
      }
      if (Take("->")) {  // a name for the tree
        SkipSpace();
        ReadName();
        continue;
      }
      const char c = Next();
      if (at_ >= text_.size() || c == '\n' || c == '|' || c == ')' || c == ']') return OkStatus();
      pool_.Charge(kItemWork);
      if (pool_.exhausted()) return TooMuchToCompile();
      Node node;
      node.at = at_;
      WEFT_RETURN_IF_ERROR(ReadItem(&node, depth));
      WEFT_RETURN_IF_ERROR(ReadCount(&node));
      sequence->push_back(std::move(node));
    }
  }

  Status ReadItem(Node* node, int depth) {
    if (Next() == '"') return ReadText(node);
    if (Next() == '/') return ReadPattern(node);
    const bool is_optional = Next() == '[';
    if (is_optional || Next() == '(') {
      ++at_;
      node->kind = Node::Kind::kGroup;
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

  Status ReadText(Node* node) {
    node->kind = Node::Kind::kText;
    WEFT_RETURN_IF_ERROR(ReadQuoted(&node->text));
    if (Take("..")) {
      node->kind = Node::Kind::kRange;
      if (Next() != '"') return Wrong("a range ends with a text");
      return ReadQuoted(&node->last);
    }
    if (Next() == 'i' && (at_ + 1 >= text_.size() || !IsNameChar(text_[at_ + 1]))) {
      ++at_;
      node->any_case = true;
    }
    return OkStatus();
  }

  Status ReadPattern(Node* node) {
    node->kind = Node::Kind::kPattern;
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

  Status ReadCount(Node* node) {
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
      if (!good || least > most || most > kMostRepeats)
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
  size_t at_ = 0;
};

// --- compiling ----------------------------------------------------------------------------------

class LarkCompiler {
 public:
  LarkCompiler(const LarkReader& reader, Grammar* grammar)
      : reader_(reader), grammar_(*grammar), pool_(grammar->pool()) {}

  StatusOr<RuleId> Compile() {
    if (!reader_.rules.contains("start")) return InvalidArgument("there is no rule start");
    std::vector<RegexId> ignored;
    for (const Node& node : reader_.ignored) {
      WEFT_ASSIGN_OR_RETURN(const RegexId regex, RegexOf(node, 0));
      ignored.push_back(regex);
    }
    if (!ignored.empty()) skipped_ = pool_.Repeat(pool_.Or(std::move(ignored)), 0, kUnlimited);
    for (const auto& [name, definition] : reader_.rules) rules_[name] = AddRule(name);
    for (const auto& [name, definition] : reader_.rules) {
      WEFT_RETURN_IF_ERROR(CompileRule(name, definition));
    }
    const RuleId whole = AddRule("start");
    grammar_.AddAlternative(whole, {grammar_.Call(rules_["start"]), grammar_.Terminal(skipped_)});
    return whole;
  }

 private:
  RuleId AddRule(const std::string& name) { return grammar_.AddRule(name); }

  // A: A x | y is y, and any number of x behind it.
  Status CompileRule(const std::string& name, const Definition& definition) {
    const RuleId rule = rules_[name];
    rule_name_ = name;
    std::vector<std::vector<Symbol>> first, more;
    for (const Sequence& sequence : definition.body) {
      WEFT_ASSIGN_OR_RETURN(std::vector<Symbol> symbols, SymbolsOf(sequence));
      const bool calls_itself =
          !symbols.empty() && symbols[0].kind == Symbol::Kind::kRule && symbols[0].index == rule;
      if (calls_itself) symbols.erase(symbols.begin());
      if (!calls_itself) {
        first.push_back(std::move(symbols));
      } else if (!symbols.empty()) {
        more.push_back(std::move(symbols));
      }
    }
    if (first.empty()) return reader_.Wrong(definition.at, "a rule that never begins");
    if (!more.empty()) {
      const RuleId again = AddRule(name);
      for (const auto& symbols : more) grammar_.AddAlternative(again, symbols);
      for (auto& symbols : first) {
        symbols.push_back(grammar_.Repeat({.rule = again, .least = 0, .most = kUnlimited}));
      }
    }
    for (const auto& symbols : first) grammar_.AddAlternative(rule, symbols);
    return OkStatus();
  }

  StatusOr<std::vector<Symbol>> SymbolsOf(const Sequence& sequence) {
    std::vector<Symbol> symbols;
    for (const Node& node : sequence) {
      WEFT_ASSIGN_OR_RETURN(const Symbol symbol, SymbolOf(node));
      symbols.push_back(symbol);
    }
    return symbols;
  }

  StatusOr<Symbol> SymbolOf(const Node& node) {
    const bool is_rule = node.kind == Node::Kind::kName && !IsTerminalName(node.text);
    RuleId rule = kNoRule;
    if (is_rule) {
      const auto found = rules_.find(node.text);
      if (found == rules_.end()) return Undefined(node);
      rule = found->second;
    } else if (node.kind == Node::Kind::kGroup) {
      rule = AddRule(rule_name_);
      for (const Sequence& sequence : node.group) {
        WEFT_ASSIGN_OR_RETURN(const std::vector<Symbol> symbols, SymbolsOf(sequence));
        grammar_.AddAlternative(rule, symbols);
      }
    } else {
      Node once = node;
      once.least = once.most = 1;
      WEFT_ASSIGN_OR_RETURN(const RegexId regex, RegexOf(once, 0));
      const Symbol terminal = grammar_.Terminal(pool_.Concat(skipped_, regex));
      if (node.least == 1 && node.most == 1) return terminal;
      rule = AddRule(rule_name_);
      grammar_.AddAlternative(rule, {terminal});
    }
    if (node.least == 1 && node.most == 1) return grammar_.Call(rule);
    return grammar_.Repeat({.rule = rule, .least = node.least, .most = node.most});
  }

  Status Undefined(const Node& node) const {
    return reader_.Wrong(node.at, StrCat(Printable(node.text), " is used but not defined"));
  }

  StatusOr<RegexId> RegexOf(const Node& node, int depth) {
    if (depth > kMostDepth) return reader_.Wrong(node.at, "terminals are nested too deep");
    WEFT_ASSIGN_OR_RETURN(const RegexId regex, OnceOf(node, depth));
    if (node.least == 1 && node.most == 1) return regex;
    return pool_.Repeat(regex, node.least, node.most);
  }

  StatusOr<RegexId> OnceOf(const Node& node, int depth) {
    switch (node.kind) {
      case Node::Kind::kText:
        return node.any_case ? AnyCase(node.text) : pool_.Literal(node.text);
      case Node::Kind::kPattern: {
        const auto regex = WholeTextsMatching(&pool_, node.text);
        if (!regex.ok()) return reader_.Wrong(node.at, Message(regex.status()));
        return *regex;
      }
      case Node::Kind::kRange: {
        if (node.text.size() != 1 || node.last.size() != 1 || node.text > node.last) {
          return reader_.Wrong(node.at, "a range is between two letters of ASCII");
        }
        return pool_.Bytes(ByteSet::Range(node.text[0], node.last[0]));
      }
      case Node::Kind::kGroup:
        return AnyOf(node.group, depth);
      case Node::Kind::kName:
        break;
    }
    if (!IsTerminalName(node.text)) {
      return reader_.Wrong(node.at,
                           StrCat("a terminal cannot have the rule ", Printable(node.text)));
    }
    return Terminal(node, depth);
  }

  StatusOr<RegexId> Terminal(const Node& node, int depth) {
    if (const auto known = terminals_.find(node.text); known != terminals_.end())
      return known->second;
    const auto found = reader_.terminals.find(node.text);
    if (found == reader_.terminals.end()) return Undefined(node);
    if (!open_.insert(node.text).second) {
      return reader_.Wrong(node.at, StrCat("the terminal ", Printable(node.text), " has itself"));
    }
    WEFT_ASSIGN_OR_RETURN(const RegexId regex, AnyOf(found->second.body, depth));
    open_.erase(node.text);
    terminals_[node.text] = regex;
    return regex;
  }

  StatusOr<RegexId> AnyOf(const Alternatives& alternatives, int depth) {
    std::vector<RegexId> parts;
    for (const Sequence& sequence : alternatives) {
      RegexId whole = kEmpty;
      for (const Node& node : sequence) {
        WEFT_ASSIGN_OR_RETURN(const RegexId part, RegexOf(node, depth + 1));
        whole = pool_.Concat(whole, part);
      }
      parts.push_back(whole);
    }
    return pool_.Or(std::move(parts));
  }

  RegexId AnyCase(std::string_view text) {
    RegexId whole = kEmpty;
    for (const char c : text) {
      ByteSet set = ByteSet::Of(static_cast<uint8_t>(c));
      const char lower = AsciiLower(c);
      if (lower >= 'a' && lower <= 'z') {
        set = ByteSet::Of(static_cast<uint8_t>(lower)) |
              ByteSet::Of(static_cast<uint8_t>(lower - 32));
      }
      whole = pool_.Concat(whole, pool_.Bytes(set));
    }
    return whole;
  }

  const LarkReader& reader_;
  Grammar& grammar_;
  RegexPool& pool_;
  RegexId skipped_ = kEmpty;  // what may stand before a terminal
  std::string rule_name_;
  std::map<std::string, RuleId> rules_;
  std::map<std::string, RegexId> terminals_;
  std::set<std::string> open_;
};

}  // namespace

bool IsLark(std::string_view text) {
  constexpr std::string_view kStart = "start";
  for (std::string_view line : StrSplit(text, '\n')) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t?!"), line.size()));
    if (!line.starts_with(kStart)) continue;
    line.remove_prefix(kStart.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t.0123456789"), line.size()));
    if (line.starts_with(":") && !line.starts_with("::=")) return true;
  }
  return false;
}

StatusOr<RuleId> AddLark(std::string_view text, Grammar* grammar) {
  LarkReader reader(text, &grammar->pool());
  WEFT_RETURN_IF_ERROR(reader.Read());
  return LarkCompiler(reader, grammar).Compile();
}

StatusOr<RuleId> AddGrammar(std::string_view text, Grammar* grammar) {
  return IsLark(text) ? AddLark(text, grammar) : AddGbnf(text, grammar);
}

}  // namespace weft::constraint
