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
#include "constraint/grammar/lark_text.h"
#include "constraint/regex/characters.h"
#include "constraint/regex/pattern.h"

namespace weft::constraint {
namespace {

class LarkCompiler {
 public:
  LarkCompiler(const LarkText& text, Grammar* grammar)
      : text_(text), grammar_(*grammar), pool_(grammar->pool()) {}

  StatusOr<RuleId> Compile() {
    if (!text_.rules.contains("start")) return InvalidArgument("there is no rule start");
    std::vector<RegexId> ignored;
    for (const LarkNode& node : text_.ignored) {
      WEFT_ASSIGN_OR_RETURN(const RegexId regex, RegexOf(node, 0));
      ignored.push_back(regex);
    }
    if (!ignored.empty()) skipped_ = pool_.Repeat(pool_.Or(std::move(ignored)), 0, kUnlimited);
    for (const auto& [name, definition] : text_.rules) rules_[name] = AddRule(name);
    for (const auto& [name, definition] : text_.rules) {
      WEFT_RETURN_IF_ERROR(CompileRule(name, definition));
    }
    const RuleId whole = AddRule("start");
    grammar_.AddAlternative(whole, {grammar_.Call(rules_["start"]), grammar_.Terminal(skipped_)});
    return whole;
  }

 private:
  RuleId AddRule(const std::string& name) { return grammar_.AddRule(name); }

  // Removes left recursion: A: A x
  // y becomes y followed by any number of x.
  Status CompileRule(const std::string& name, const LarkDefinition& definition) {
    const RuleId rule = rules_[name];
    rule_name_ = name;
    std::vector<std::vector<Symbol>> first, more;
    for (const LarkSequence& sequence : definition.body) {
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
    if (first.empty()) return text_.Wrong(definition.at, "a rule that never begins");
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

  StatusOr<std::vector<Symbol>> SymbolsOf(const LarkSequence& sequence) {
    std::vector<Symbol> symbols;
    for (const LarkNode& node : sequence) {
      WEFT_ASSIGN_OR_RETURN(const Symbol symbol, SymbolOf(node));
      symbols.push_back(symbol);
    }
    return symbols;
  }

  StatusOr<Symbol> SymbolOf(const LarkNode& node) {
    const bool is_rule = node.kind == LarkNode::Kind::kName && !IsLarkTerminal(node.text);
    RuleId rule = kNoRule;
    if (is_rule) {
      const auto found = rules_.find(node.text);
      if (found == rules_.end()) return Undefined(node);
      rule = found->second;
    } else if (node.kind == LarkNode::Kind::kGroup) {
      rule = AddRule(rule_name_);
      for (const LarkSequence& sequence : node.group) {
        WEFT_ASSIGN_OR_RETURN(const std::vector<Symbol> symbols, SymbolsOf(sequence));
        grammar_.AddAlternative(rule, symbols);
      }
    } else {
      LarkNode once = node;
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

  Status Undefined(const LarkNode& node) const {
    return text_.Wrong(node.at, StrCat(Printable(node.text), " is used but not defined"));
  }

  StatusOr<RegexId> RegexOf(const LarkNode& node, int depth) {
    if (depth > kMaxLarkDepth) return text_.Wrong(node.at, "terminals are nested too deep");
    WEFT_ASSIGN_OR_RETURN(const RegexId regex, OnceOf(node, depth));
    if (node.least == 1 && node.most == 1) return regex;
    return pool_.Repeat(regex, node.least, node.most);
  }

  StatusOr<RegexId> OnceOf(const LarkNode& node, int depth) {
    switch (node.kind) {
      case LarkNode::Kind::kText:
        return node.any_case ? AnyCase(node.text) : pool_.Literal(node.text);
      case LarkNode::Kind::kPattern: {
        const auto regex = WholeTextsMatching(&pool_, node.text);
        if (!regex.ok()) return text_.Wrong(node.at, Message(regex.status()));
        return *regex;
      }
      case LarkNode::Kind::kRange: {
        if (node.text.size() != 1 || node.last.size() != 1 || node.text > node.last) {
          return text_.Wrong(node.at, "a range is between two letters of ASCII");
        }
        return pool_.Bytes(ByteSet::Range(node.text[0], node.last[0]));
      }
      case LarkNode::Kind::kGroup:
        return AnyOf(node.group, depth);
      case LarkNode::Kind::kName:
        break;
    }
    if (!IsLarkTerminal(node.text)) {
      return text_.Wrong(node.at, StrCat("a terminal cannot have the rule ", Printable(node.text)));
    }
    return Terminal(node, depth);
  }

  StatusOr<RegexId> Terminal(const LarkNode& node, int depth) {
    if (const auto known = terminals_.find(node.text); known != terminals_.end())
      return known->second;
    const auto found = text_.terminals.find(node.text);
    if (found == text_.terminals.end()) return Undefined(node);
    if (!open_.insert(node.text).second) {
      return text_.Wrong(node.at, StrCat("the terminal ", Printable(node.text), " has itself"));
    }
    WEFT_ASSIGN_OR_RETURN(const RegexId regex, AnyOf(found->second.body, depth));
    open_.erase(node.text);
    terminals_[node.text] = regex;
    return regex;
  }

  StatusOr<RegexId> AnyOf(const LarkAlternatives& alternatives, int depth) {
    std::vector<RegexId> parts;
    for (const LarkSequence& sequence : alternatives) {
      RegexId whole = kEmpty;
      for (const LarkNode& node : sequence) {
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

  const LarkText& text_;
  Grammar& grammar_;
  RegexPool& pool_;
  RegexId skipped_ = kEmpty;  // the ignored text before a terminal
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
  WEFT_ASSIGN_OR_RETURN(const LarkText read, ReadLarkText(text, &grammar->pool()));
  return LarkCompiler(read, grammar).Compile();
}

StatusOr<RuleId> AddGrammar(std::string_view text, Grammar* grammar) {
  return IsLark(text) ? AddLark(text, grammar) : AddGbnf(text, grammar);
}

}  // namespace weft::constraint
