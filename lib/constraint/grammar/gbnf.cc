#include "constraint/grammar/gbnf.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "constraint/regex/characters.h"
#include "constraint/regex/pattern.h"

namespace weft::constraint {
namespace {

constexpr int kMaxGroupDepth = 200;
constexpr int64_t kMaxRuleRepeats = 100'000;
// The cost of a rule in steps of work, without its parts.
constexpr int64_t kRuleWork = 32;

class GbnfReader {
 public:
  GbnfReader(std::string_view text, Grammar* grammar) : text_(text), grammar_(*grammar) {}

  StatusOr<RuleId> Read() {
    SkipSpace(/*lines=*/true);
    while (at_ < text_.size()) {
      grammar_.pool().budget().Spend(kRuleWork);
      if (grammar_.pool().budget().exhausted()) return TooMuchToCompile();
      WEFT_RETURN_IF_ERROR(ReadRule());
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return InvalidArgument("there is no rule root");
    for (const auto& [name, rule] : rules_) {
      if (!defined_[static_cast<size_t>(rule - first_rule_)])
        return InvalidArgument("the rule ", Printable(name), " is used but not defined");
    }
    return root->second;
  }

 private:
  Status Wrong(std::string_view what) const {
    int64_t line = 1;
    for (const char c : text_.substr(0, at_)) line += c == '\n';
    return InvalidArgument("line ", line, ": ", what);
  }
  bool Take(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  void SkipSpace(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        break;
      }
    }
  }
  std::string ReadName() {
    const size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = AsciiLower(text_[at_]);
      if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_') break;
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }
  RuleId AddRule(const std::string& name, bool defined) {
    const RuleId rule = grammar_.AddRule(name);
    if (first_rule_ == kNoRule) first_rule_ = rule;
    defined_.push_back(defined);
    return rule;
  }
  RuleId RuleOf(const std::string& name) {
    const auto [it, added] = rules_.try_emplace(name, kNoRule);
    if (added) it->second = AddRule(name, false);
    return it->second;
  }

  Status ReadRule() {
    const std::string name = ReadName();
    if (name.empty()) return Wrong("a rule begins with its name");
    SkipSpace(false);
    if (!Take("::=")) return Wrong("a rule's name is followed by ::=");
    SkipSpace(true);
    const RuleId rule = RuleOf(name);
    if (defined_[static_cast<size_t>(rule - first_rule_)]) return Wrong("a rule is defined twice");
    defined_[static_cast<size_t>(rule - first_rule_)] = true;
    rule_name_ = name;
    WEFT_RETURN_IF_ERROR(ReadAlternatives(rule, 0));
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r')
      return Wrong("a rule ends with its line");
    SkipSpace(true);
    return OkStatus();
  }

  Status ReadAlternatives(RuleId rule, int depth) {
    if (depth > kMaxGroupDepth) return Wrong("groups are nested too deep");
    do {
      SkipSpace(true);
      WEFT_ASSIGN_OR_RETURN(const std::vector<Symbol> symbols, ReadSequence(depth));
      grammar_.AddAlternative(rule, symbols);
    } while (Take("|"));
    return OkStatus();
  }

  StatusOr<std::vector<Symbol>> ReadSequence(int depth) {
    std::vector<Symbol> symbols;
    for (; at_ < text_.size(); SkipSpace(depth > 0)) {
      grammar_.pool().budget().Spend(1);
      if (grammar_.pool().budget().exhausted()) return TooMuchToCompile();
      const char c = text_[at_];
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      Symbol symbol;
      if (c == '"') {
        WEFT_ASSIGN_OR_RETURN(symbol, ReadLiteral());
      } else if (c == '[') {
        const auto set = ReadCharClass(text_, &at_);
        if (!set.ok()) return Wrong(Message(set.status()));
        symbol = grammar_.Terminal(OneOf(&grammar_.pool(), *set, Spelling::kPlain));
      } else if (Take(".")) {
        symbol = grammar_.Terminal(OneOf(&grammar_.pool(), CharSet::All(), Spelling::kPlain));
      } else if (Take("(")) {
        const RuleId group = AddRule(rule_name_, true);
        WEFT_RETURN_IF_ERROR(ReadAlternatives(group, depth + 1));
        SkipSpace(true);
        if (!Take(")")) return Wrong("a \"(\" that is not closed");
        symbol = grammar_.Call(group);
      } else {
        const std::string name = ReadName();
        if (name.empty()) return Wrong("something that is no part of a rule");
        symbol = grammar_.Call(RuleOf(name));
      }
      WEFT_RETURN_IF_ERROR(ReadRepetition(&symbol));
      symbols.push_back(symbol);
    }
    return symbols;
  }

  StatusOr<Symbol> ReadLiteral() {
    std::string text;
    RegexId all = kEmpty;
    RegexPool& pool = grammar_.pool();
    ++at_;
    while (!Take("\"")) {
      if (at_ >= text_.size()) return Wrong("a text that is not closed");
      if (text_[at_] != '\\') {
        text.push_back(text_[at_++]);
        continue;
      }
      // An escape has the same meaning as in a class.
      size_t length = 2;
      if (text_.substr(at_, 2) == "\\x") length = 4;
      if (text_.substr(at_, 2) == "\\u") length = 6;
      if (text_.substr(at_, 2) == "\\U") length = 10;
      std::string one(text_.substr(at_, length));
      if (length == 10) one = "\\u{" + one.substr(2) + "}";
      const std::string as_class = StrCat("[", one, "]");
      size_t at = 0;
      const auto set = ReadCharClass(as_class, &at);
      if (!set.ok() || at != as_class.size()) return Wrong("an unknown escape");
      all = pool.Concat({all, pool.Literal(text), OneOf(&pool, *set, Spelling::kPlain)});
      text.clear();
      at_ += length;
    }
    return grammar_.Terminal(pool.Concat(all, pool.Literal(text)));
  }

  Status ReadRepetition(Symbol* symbol) {
    while (at_ < text_.size()) {
      int64_t least = 0, most = kUnlimited;
      if (Take("+")) {
        least = 1;
      } else if (Take("?")) {
        most = 1;
      } else if (Take("{")) {
        WEFT_RETURN_IF_ERROR(ReadBraces(&least, &most));
      } else if (!Take("*")) {
        break;
      }
      if (symbol->kind == Symbol::Kind::kTerminal) {
        *symbol = grammar_.Terminal(grammar_.pool().Repeat(
            symbol->index, static_cast<int32_t>(least), static_cast<int32_t>(most)));
        continue;
      }
      RuleId rule = symbol->index;
      if (symbol->kind != Symbol::Kind::kRule) {
        rule = AddRule(rule_name_, true);
        grammar_.AddAlternative(rule, {*symbol});
      }
      *symbol = grammar_.Repeat({rule, static_cast<int32_t>(least), static_cast<int32_t>(most)});
    }
    return OkStatus();
  }

  Status ReadBraces(int64_t* least, int64_t* most) {
    const size_t close = text_.find('}', at_);
    if (close == std::string_view::npos) return Wrong("a \"{\" that is not closed");
    const std::string_view inside = text_.substr(at_, close - at_);
    const size_t comma = inside.find(',');
    const std::string_view first = inside.substr(0, comma);
    bool good = ParseInt64(first, least) || (comma != std::string_view::npos && first.empty());
    *most = *least;
    if (comma != std::string_view::npos) {
      const std::string_view second = inside.substr(comma + 1);
      *most = kUnlimited;
      if (!second.empty()) good = good && ParseInt64(second, most);
    }
    if (!good || *least < 0 || *most < kUnlimited || (*most != kUnlimited && *most < *least) ||
        *least > kMaxRuleRepeats || *most > kMaxRuleRepeats) {
      return Wrong("{...} does not say how many times");
    }
    at_ = close + 1;
    return OkStatus();
  }

  std::string_view text_;
  size_t at_ = 0;
  Grammar& grammar_;
  std::string rule_name_;
  std::map<std::string, RuleId> rules_;
  RuleId first_rule_ = kNoRule;  // the first rule of this text
  std::vector<bool> defined_;
};

}  // namespace

StatusOr<RuleId> AddGbnf(std::string_view text, Grammar* grammar) {
  return GbnfReader(text, grammar).Read();
}

}  // namespace weft::constraint
