#include "constraint/grammar/grammar.h"
#include "constraint/regex/walk.h"

#include <algorithm>
#include <utility>

namespace weft::constraint {
namespace {

constexpr size_t kMaxPrefixWithWanted = 12;
// Longer rows of successive optional terminals become one terminal.
constexpr size_t kLongRow = 16;

}  // namespace

Status TooMuchToCompile() {
  return ResourceExhausted(
      "it takes more work or memory to compile than is allowed; make it simpler");
}

Grammar::Grammar() = default;

RuleId Grammar::AddRule(const std::string& name) {
  rules_.emplace_back();
  const auto rule = static_cast<RuleId>(rules_.size()) - 1;
  if (!name.empty()) names_[rule] = name;
  return rule;
}

// Otherwise a long row of optional terminals would become one thread for each.
std::vector<Symbol> Grammar::WithoutLongRows(const std::vector<Symbol>& symbols) {
  std::vector<Symbol> some;
  size_t row = 0;  // length of the row at the end of `some`
  const auto close = [&] {
    if (row >= kLongRow) {
      RegexId all = kEmpty;
      for (; row > 0; --row, some.pop_back()) all = pool_.Concat(some.back().index, all);
      some.push_back(Terminal(all));
    }
    row = 0;
  };
  for (const Symbol& symbol : symbols) {
    const bool optional =
        symbol.kind == Symbol::Kind::kTerminal && pool_.AcceptsEmpty(symbol.index);
    if (!optional) close();
    some.push_back(symbol);
    row += optional;
  }
  close();
  return some;
}

void Grammar::AddAlternative(RuleId rule, const std::vector<Symbol>& listed) {
  const std::vector<Symbol> symbols = WithoutLongRows(listed);
  rules_[static_cast<size_t>(rule)].push_back(static_cast<int32_t>(code_.size()));
  for (const Symbol& symbol : symbols) {
    const auto here = static_cast<int32_t>(code_.size());
    if (symbol.kind == Symbol::Kind::kObject) {
      objects_[static_cast<size_t>(symbol.index)].place = here;
    } else if (symbol.kind == Symbol::Kind::kArray) {
      arrays_[static_cast<size_t>(symbol.index)].place = here;
    } else if (symbol.kind == Symbol::Kind::kDistinct) {
      distincts_[static_cast<size_t>(symbol.index)].place = here;
    }
    code_.push_back(symbol);
  }
  code_.push_back({});
  // After a container's kEnd come the positions at which its members are read.
  const Symbol first = symbols.empty() ? Symbol{} : symbols[0];
  if (first.kind == Symbol::Kind::kObject) {
    for (const int32_t p : objects_[static_cast<size_t>(first.index)].properties) {
      code_.push_back({Symbol::Kind::kProperty, p});
    }
  } else if (first.kind == Symbol::Kind::kArray) {
    code_.push_back({Symbol::Kind::kElement, first.index});
  } else if (first.kind == Symbol::Kind::kDistinct) {
    const size_t values = distincts_[static_cast<size_t>(first.index)].values.size();
    code_.insert(code_.end(), values, {Symbol::Kind::kTaken, first.index});
  }
}

Symbol Grammar::Repeat(const RepeatSpec& repeat) {
  repeats_.push_back(repeat);
  return {Symbol::Kind::kRepeat, static_cast<int32_t>(repeats_.size()) - 1};
}

Symbol Grammar::Object(ObjectSpec object, const std::vector<PropertySpec>& properties) {
  for (const PropertySpec& property : properties) {
    object.properties.push_back(static_cast<int32_t>(properties_.size()));
    object.named += property.many ? 0 : 1;
    properties_.push_back(property);
    properties_.back().object = static_cast<int32_t>(objects_.size());
    properties_.back().slot = static_cast<int32_t>(object.properties.size()) - 1;
  }
  objects_.push_back(std::move(object));
  return {Symbol::Kind::kObject, static_cast<int32_t>(objects_.size()) - 1};
}

Symbol Grammar::Array(ArraySpec array) {
  arrays_.push_back(std::move(array));
  return {Symbol::Kind::kArray, static_cast<int32_t>(arrays_.size()) - 1};
}

Symbol Grammar::Distinct(DistinctSpec distinct) {
  distincts_.push_back(std::move(distinct));
  return {Symbol::Kind::kDistinct, static_cast<int32_t>(distincts_.size()) - 1};
}

bool Grammar::ObjectIsProductive(const ObjectSpec& object) const {
  int64_t required = 0, named = 0;
  bool many = false;
  for (const int32_t p : object.properties) {
    const PropertySpec& property = properties_[static_cast<size_t>(p)];
    const bool possible = IsProductive(property.value) && property.key != kNothing;
    if (property.required && !possible) return false;
    required += property.required;
    named += possible && !property.many;
    many |= possible && property.many;
  }
  if (object.most != kUnlimited && required > object.most) return false;
  if (object.most != kUnlimited && object.least > object.most) return false;
  return many || named >= object.least;
}

bool Grammar::ArrayIsProductive(const ArraySpec& array) const {
  const auto productive = [&](RuleId rule) { return IsProductive(rule); };
  ArraySpec pruned = array;
  const auto prune = [&](RuleId* rule) {
    if (!productive(*rule)) *rule = kNoRule;
  };
  prune(&pruned.rest), prune(&pruned.wanted), prune(&pruned.others);
  for (auto* list : {&pruned.prefix, &pruned.wanted_prefix, &pruned.others_prefix}) {
    for (RuleId& rule : *list) prune(&rule);
  }
  return ArrayCanEnd(pruned, 0, 0);
}

bool Grammar::ArrayCanEnd(const ArraySpec& array, int64_t length, int64_t found) {
  constexpr int64_t kFar = INT64_MAX / 2;
  const int64_t most = array.most == kUnlimited ? kFar : array.most;
  const int64_t allow = array.allow == kUnlimited ? kFar : array.allow;
  if (length > most || found > allow) return false;
  if (length >= array.least && found >= array.need) return true;
  const auto at = static_cast<size_t>(length);
  if (at < array.prefix.size()) {
    if (PlainElement(array, length) != kNoRule && ArrayCanEnd(array, length + 1, found))
      return true;
    return WantedElement(array, length) != kNoRule && ArrayCanEnd(array, length + 1, found + 1);
  }
  // After the prefix all elements are alike, so only their numbers matter.
  const bool plain = PlainElement(array, length) != kNoRule;
  const int64_t max_wanted = WantedElement(array, length) != kNoRule ? allow - found : 0;
  const int64_t min_wanted = std::max<int64_t>(0, array.need - found);
  const int64_t more = std::max(min_wanted, array.least - length);
  if (min_wanted > max_wanted) return false;
  return more <= (plain ? most - length : std::min(max_wanted, most - length));
}

RuleId Grammar::PlainElement(const ArraySpec& array, int64_t index) {
  const auto at = static_cast<size_t>(index);
  if (array.others_prefix.size() > at) return array.others_prefix[at];
  if (at < array.prefix.size()) return array.prefix[at];
  return array.allow != kUnlimited ? array.others : array.rest;
}

RuleId Grammar::WantedElement(const ArraySpec& array, int64_t index) {
  const auto at = static_cast<size_t>(index);
  if (at < array.prefix.size()) {
    return at < array.wanted_prefix.size() ? array.wanted_prefix[at] : kNoRule;
  }
  return array.wanted;
}

bool Grammar::SymbolIsProductive(const Symbol& symbol) const {
  switch (symbol.kind) {
    case Symbol::Kind::kRule:
      return IsProductive(symbol.index);
    case Symbol::Kind::kRepeat:
      return repeat(symbol.index).least == 0 || IsProductive(repeat(symbol.index).rule);
    case Symbol::Kind::kObject:
      return ObjectIsProductive(object(symbol.index));
    case Symbol::Kind::kArray:
      return ArrayIsProductive(array(symbol.index));
    case Symbol::Kind::kDistinct: {
      const DistinctSpec& spec = distinct(symbol.index);
      return spec.least <= static_cast<int64_t>(spec.values.size()) &&
             (spec.most == kUnlimited || spec.least <= spec.most);
    }
    default:
      return true;
  }
}

// Calls `learns` for all rules until no call learns anything new.
template <typename Learns>
void Grammar::Sweep(const Learns& learns) {
  bool changed = true;
  for (bool forward = false; changed && !pool_.budget().exhausted(); forward = !forward) {
    changed = false;
    pool_.budget().Spend(1 + static_cast<int64_t>(rules_.size()));
    for (size_t i = 0; i < rules_.size(); ++i) {
      changed |= learns(forward ? i : rules_.size() - 1 - i);
    }
  }
}

void Grammar::FindProductive() {
  productive_.assign(rules_.size(), false);
  Sweep([&](size_t rule) {
    if (productive_[rule]) return false;
    for (const int32_t start : rules_[rule]) {
      bool all = true;
      for (int32_t place = start; all && At(place).kind != Symbol::Kind::kEnd; ++place) {
        all = At(place).kind == Symbol::Kind::kTerminal ? pool_.walk().IsLive(At(place).index)
                                                        : SymbolIsProductive(At(place));
      }
      if (!all) continue;
      productive_[rule] = true;
      return true;
    }
    return false;
  });
}

void Grammar::Prune() {
  const auto prune = [&](RuleId* rule) {
    if (!IsProductive(*rule)) *rule = kNoRule;
  };
  for (RepeatSpec& repeat : repeats_) {
    if (!IsProductive(repeat.rule)) repeat.most = 0;
  }
  for (PropertySpec& property : properties_) {
    if (!IsProductive(property.value)) property.key = kNothing;
  }
  for (ArraySpec& array : arrays_) {
    prune(&array.rest), prune(&array.wanted), prune(&array.others);
    for (auto* list : {&array.prefix, &array.wanted_prefix, &array.others_prefix}) {
      for (RuleId& rule : *list) prune(&rule);
    }
  }
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    std::erase_if(rules_[rule], [&](int32_t place) {
      for (; At(place).kind != Symbol::Kind::kEnd; ++place) {
        const Symbol& symbol = At(place);
        if (symbol.kind == Symbol::Kind::kTerminal ? !pool_.walk().IsLive(symbol.index)
                                                   : !SymbolIsProductive(symbol)) {
          return true;
        }
      }
      return false;
    });
  }
}

bool Grammar::IsNullable(const Symbol& symbol) const {
  switch (symbol.kind) {
    case Symbol::Kind::kTerminal:
      return pool_.AcceptsEmpty(symbol.index);
    case Symbol::Kind::kRule:
      return nullable_[static_cast<size_t>(symbol.index)];
    case Symbol::Kind::kRepeat:
      return repeat(symbol.index).least == 0 || repeat(symbol.index).most == 0 ||
             nullable_[static_cast<size_t>(repeat(symbol.index).rule)];
    default:
      return false;
  }
}

void Grammar::FindNullable() {
  nullable_.assign(rules_.size(), false);
  Sweep([&](size_t rule) {
    if (nullable_[rule]) return false;
    for (int32_t place : rules_[rule]) {
      while (At(place).kind != Symbol::Kind::kEnd && IsNullable(At(place))) ++place;
      nullable_[rule] = nullable_[rule] || At(place).kind == Symbol::Kind::kEnd;
    }
    return static_cast<bool>(nullable_[rule]);
  });
}

std::vector<RuleId> Grammar::CalledFirst(RuleId rule) const {
  std::vector<RuleId> called;
  for (int32_t place : AlternativesOf(rule)) {
    for (;; ++place) {
      const Symbol& symbol = At(place);
      if (symbol.kind == Symbol::Kind::kRule) called.push_back(symbol.index);
      if (symbol.kind == Symbol::Kind::kRepeat && repeat(symbol.index).most != 0) {
        called.push_back(repeat(symbol.index).rule);
      }
      if (symbol.kind == Symbol::Kind::kEnd || !IsNullable(symbol)) break;
    }
  }
  return called;
}

// A left-recursive rule would call itself forever.
Status Grammar::CheckRecursion() const {
  // A depth-first search over the rules called first, iterative because grammars can be deep.
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> color(rules_.size(), kNew);
  struct Visit {
    RuleId rule;
    std::vector<RuleId> called;
  };
  std::vector<Visit> stack;
  const auto open = [&](RuleId rule) {
    color[static_cast<size_t>(rule)] = kOpen;
    stack.push_back({rule, CalledFirst(rule)});
  };
  for (RuleId root = 0; root < n_rules(); ++root) {
    if (color[static_cast<size_t>(root)] == kNew) open(root);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.called.empty()) {
        color[static_cast<size_t>(top.rule)] = kDone;
        stack.pop_back();
        continue;
      }
      const RuleId next = top.called.back();
      top.called.pop_back();
      if (color[static_cast<size_t>(next)] == kOpen) {
        const auto name = names_.find(next);
        return InvalidArgument("the rule ", name == names_.end() ? "?" : Printable(name->second),
                               " calls itself before it reads anything; put what it reads first");
      }
      if (color[static_cast<size_t>(next)] == kNew) open(next);
    }
  }
  return OkStatus();
}

void Grammar::LayOut(const JsonLayout& layout) {
  const auto byte = [&](char c) { return pool_.Byte(static_cast<uint8_t>(c)); };
  separator_ = layout.separator;
  before_first_ = layout.before_first;
  object_open_ = byte('{'), object_close_empty_ = byte('}');
  array_open_ = byte('['), array_close_empty_ = byte(']');
  object_close_ = pool_.Concat(layout.before_close, object_close_empty_);
  array_close_ = pool_.Concat(layout.before_close, array_close_empty_);
  for (PropertySpec& property : properties_) {
    const RegexId key = pool_.Concat(property.key, layout.colon);
    property.first = pool_.Concat(layout.before_first, key);
    property.next = pool_.Concat(layout.separator, key);
  }
  for (DistinctSpec& distinct : distincts_) {
    for (const RegexId value : distinct.values) {
      distinct.first.push_back(pool_.Concat(layout.before_first, value));
      distinct.next.push_back(pool_.Concat(layout.separator, value));
    }
  }
}

Status Grammar::Finish(RuleId start, const JsonLayout& layout) {
  for (const ArraySpec& array : arrays_) {
    if (array.prefix.size() > kMaxPrefixWithWanted && array.need > 0) {
      return Unimplemented("contains next to more than ", kMaxPrefixWithWanted,
                           " prefixItems is not supported");
    }
  }
  start_ = start;
  LayOut(layout);
  FindProductive();
  if (!IsProductive(start)) return InvalidArgument("nothing can ever satisfy it");
  Prune();
  FindNullable();
  WEFT_RETURN_IF_ERROR(CheckRecursion());
  // The outermost call, of the start rule.
  start_place_ = static_cast<int32_t>(code_.size());
  code_.push_back({Symbol::Kind::kRule, start});
  code_.push_back({});
  return OkStatus();
}

int64_t Grammar::bytes() const {
  int64_t values = 0;
  for (const DistinctSpec& distinct : distincts_) {
    values += static_cast<int64_t>(sizeof(distinct) + 12 * distinct.values.size());
  }
  return pool_.budget().bytes() + values +
         static_cast<int64_t>(code_.size() * sizeof(Symbol) + rules_.size() * 48 +
                              properties_.size() * sizeof(PropertySpec) +
                              objects_.size() * sizeof(ObjectSpec) +
                              arrays_.size() * sizeof(ArraySpec));
}

}  // namespace weft::constraint
