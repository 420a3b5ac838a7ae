#include "constraint/grammar/written_grammar.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "constraint/grammar/lark.h"
#include "constraint/regex/analysis.h"
#include "constraint/regex/walk.h"

namespace weft::constraint {
namespace {

// The part of a grammar that starts with the rule `first_rule`.
class Added {
 public:
  Added(Grammar* grammar, RuleId first_rule) : grammar_(*grammar), pool_(grammar->pool()) {
    for (RuleId rule = first_rule; rule < grammar_.n_rules(); ++rule) {
      for (int32_t place : grammar_.AlternativesOf(rule)) {
        for (; At(place).kind != Symbol::Kind::kEnd; ++place) {
          if (At(place).kind == Symbol::Kind::kTerminal) terminals_.push_back(place);
          if (Called(place) != kNoRule) calls_[Called(place)].push_back(place);
        }
        rule_ending_at_[place] = rule;
      }
    }
  }

  void Spell(RegexPool::Escapes escapes) {
    for (const int32_t place : terminals_) {
      grammar_.SetTerminal(place, pool_.Spelled(At(place).index, escapes));
    }
  }

  Status Exclude(std::string_view text) {
    const RegexId containing =
        pool_.Concat({pool_.Anything(), pool_.Literal(text), pool_.Anything()});
    for (const int32_t place : terminals_) {
      const RegexId left = pool_.AndNot(At(place).index, containing);
      grammar_.SetTerminal(place, pool_.walk().IsLive(left) ? left : kNothing);
    }
    if (HasBorder(text) || MayCross(text)) {
      return Unimplemented("its text might contain ", Printable(text),
                           ", which ends it where it is written");
    }
    return OkStatus();
  }

 private:
  const Symbol& At(int32_t place) const { return grammar_.At(place); }
  RuleId Called(int32_t place) const {
    const Symbol& symbol = At(place);
    if (symbol.kind == Symbol::Kind::kRule) return symbol.index;
    if (symbol.kind == Symbol::Kind::kRepeat) return grammar_.repeat(symbol.index).rule;
    return kNoRule;
  }

  // Whether a proper suffix of the text is also a prefix.
  static bool HasBorder(std::string_view text) {
    for (size_t size = 1; size < text.size(); ++size) {
      if (text.starts_with(text.substr(text.size() - size))) return true;
    }
    return false;
  }

  // The terminals that may follow the one at `place`, for all callers of its rule.
  const std::vector<int32_t>& Followers(int32_t place) {
    const auto [it, added] = followers_.try_emplace(place);
    if (!added) return it->second;
    std::set<int32_t> seen;
    std::vector<int32_t> todo{place + 1};
    while (!todo.empty() && !pool_.budget().exhausted()) {
      const int32_t at = todo.back();
      todo.pop_back();
      if (!seen.insert(at).second) continue;
      pool_.budget().Spend(1);
      const Symbol& symbol = At(at);
      if (symbol.kind == Symbol::Kind::kTerminal) {
        it->second.push_back(at);
        if (pool_.AcceptsEmpty(symbol.index)) todo.push_back(at + 1);
      } else if (symbol.kind == Symbol::Kind::kEnd) {
        for (const int32_t site : calls_[rule_ending_at_[at]]) {
          todo.push_back(site + 1);
          if (At(site).kind == Symbol::Kind::kRepeat) Enter(Called(site), &todo);
        }
      } else {
        Enter(Called(at), &todo);
        const bool may_be_left_out =
            symbol.kind == Symbol::Kind::kRepeat && grammar_.repeat(symbol.index).least == 0;
        if (may_be_left_out) todo.push_back(at + 1);
      }
    }
    return it->second;
  }
  void Enter(RuleId rule, std::vector<int32_t>* todo) const {
    const auto& starts = grammar_.AlternativesOf(rule);
    todo->insert(todo->end(), starts.begin(), starts.end());
  }

  // Whether successive terminals may together contain the text, which no single terminal contains.
  bool MayCross(std::string_view text) {
    std::set<std::pair<int32_t, size_t>> seen;  // a terminal, and the bytes of `text` read so far
    std::vector<std::pair<int32_t, size_t>> todo;
    const auto reach = [&](int32_t place, size_t read) {
      if (seen.emplace(place, read).second) todo.emplace_back(place, read);
    };
    for (const int32_t place : terminals_) {
      const RegexAnalysis::ByteUse use = pool_.analysis().BytesUsed(At(place).index);
      for (size_t read = 1; read < text.size(); ++read) {
        const auto byte = static_cast<uint8_t>(text[read - 1]);
        if (!use.any.Has(byte)) break;
        if (use.last.Has(byte)) reach(place, read);
      }
    }
    while (!todo.empty()) {
      const auto [place, read] = todo.back();
      todo.pop_back();
      const std::vector<int32_t> followers = Followers(place);
      for (const int32_t next : followers) {
        pool_.budget().Spend(1);
        if (pool_.budget().exhausted()) return true;
        RegexId left = At(next).index;
        size_t at = read;
        for (; at < text.size() && left != kNothing; ++at) {
          if (at > read && pool_.AcceptsEmpty(left)) reach(next, at);
          left = pool_.walk().Derive(left, static_cast<uint8_t>(text[at]));
        }
        if (left != kNothing) return true;
      }
    }
    return false;
  }

  Grammar& grammar_;
  RegexPool& pool_;
  std::vector<int32_t> terminals_;  // places
  std::map<RuleId, std::vector<int32_t>> calls_;
  std::map<int32_t, RuleId> rule_ending_at_;
  std::map<int32_t, std::vector<int32_t>> followers_;
};

}  // namespace

StatusOr<RuleId> AddWrittenGrammar(std::string_view text, const TextStyle& style,
                                   Grammar* grammar) {
  const RuleId first_rule = grammar->n_rules();
  WEFT_ASSIGN_OR_RETURN(const RuleId root, AddGrammar(text, grammar));
  const bool is_plain = style.escapes == TextStyle::Escapes::kNone;
  if (is_plain && style.without.empty()) return root;
  Added added(grammar, first_rule);
  if (!style.without.empty()) WEFT_RETURN_IF_ERROR(added.Exclude(style.without));
  if (!is_plain) {
    added.Spell(style.escapes == TextStyle::Escapes::kJson ? RegexPool::Escapes::kJson
                                                           : RegexPool::Escapes::kPython);
  }
  if (grammar->pool().budget().exhausted()) return TooMuchToCompile();
  return root;
}

}  // namespace weft::constraint
