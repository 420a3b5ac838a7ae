#include "constraint/regex/pattern.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "constraint/regex/pattern_parser.h"

namespace weft::constraint {
namespace {

using Kind = PatternNode::Kind;

// Builds the language of a pattern's part together with everything after it. In a JSON string ^ and
// $ are the quotation marks: no character is spelled with one.
class PatternBuilder {
 public:
  PatternBuilder(RegexPool* pool, Spelling spelling) : pool_(pool), spelling_(spelling) {
    // Any text may follow the match of a pattern.
    anything_ = pool_->Anything();
  }

  StatusOr<RegexId> Build(const PatternNode& node, RegexId rest, bool at_begin) {
    switch (node.kind) {
      case Kind::kSet:
        return pool_->Concat(OneOf(pool_, node.set, spelling_), rest);
      case Kind::kSequence:
        return BuildSequence(node, rest, at_begin);
      case Kind::kChoice: {
        std::vector<RegexId> parts;
        std::vector<std::string> texts;
        for (const PatternNode& part : node.parts) {
          if (AddText(part, &texts)) continue;
          WEFT_ASSIGN_OR_RETURN(const RegexId built, Build(part, rest, at_begin));
          parts.push_back(built);
        }
        parts.push_back(pool_->Concat(pool_->AnyOf(texts), rest));
        return pool_->Or(std::move(parts));
      }
      case Kind::kRepeat: {
        if (node.least == 1 && node.most == 1) return Build(node.parts[0], rest, at_begin);
        WEFT_ASSIGN_OR_RETURN(const RegexId body, BuildAlone(node.parts[0]));
        return pool_->Concat(pool_->Repeat(body, node.least, node.most), rest);
      }
      case Kind::kBegin:
        if (spelling_ == Spelling::kJson) return pool_->Concat(pool_->Byte('"'), rest);
        if (!at_begin) return Unimplemented("^ after the beginning is not supported");
        return rest;
      case Kind::kEnd:
        if (spelling_ == Spelling::kJson) {
          return pool_->Concat(pool_->Byte('"'), rest == anything_ ? kEmpty : rest);
        }
        if (rest != kEmpty) return Unimplemented("$ before the end is not supported");
        return rest;
      case Kind::kAhead:
      case Kind::kNotAhead: {
        WEFT_ASSIGN_OR_RETURN(const RegexId ahead, Build(node.parts[0], anything_, at_begin));
        return pool_->And({node.kind == Kind::kAhead ? ahead : pool_->Not(ahead), rest});
      }
    }
    return kNothing;
  }

  // A repeated part must be independent of its context.
  StatusOr<RegexId> BuildAlone(const PatternNode& node) {
    switch (node.kind) {
      case Kind::kAhead:
      case Kind::kNotAhead:
        return Unimplemented("look-ahead inside of a repetition is not supported");
      case Kind::kBegin:
      case Kind::kEnd:
        return Unimplemented("^ and $ inside of a repetition are not supported");
      case Kind::kSequence:
        return BuildAlone(node.parts);
      case Kind::kChoice: {
        std::vector<RegexId> parts;
        std::vector<std::string> texts;
        for (const PatternNode& part : node.parts) {
          if (AddText(part, &texts)) continue;
          WEFT_ASSIGN_OR_RETURN(const RegexId built, BuildAlone(part));
          parts.push_back(built);
        }
        parts.push_back(pool_->AnyOf(texts));
        return pool_->Or(std::move(parts));
      }
      case Kind::kRepeat: {
        WEFT_ASSIGN_OR_RETURN(const RegexId body, BuildAlone(node.parts[0]));
        return pool_->Repeat(body, node.least, node.most);
      }
      case Kind::kSet:
        return OneOf(pool_, node.set, spelling_);
    }
    return kNothing;
  }

  StatusOr<RegexId> BuildAlone(std::span<const PatternNode> parts) {
    RegexId all = kEmpty;
    for (size_t i = parts.size(); i-- > 0;) {
      WEFT_ASSIGN_OR_RETURN(const RegexId part, BuildAlone(parts[i]));
      all = pool_->Concat(part, all);
    }
    return all;
  }
  // If the parts are a literal, adds it to `texts`: one expression for many literals is cheaper to
  // walk.
  bool AddText(std::span<const PatternNode> parts, std::vector<std::string>* texts) const {
    std::string text;
    if (!std::ranges::all_of(parts, [&](const PatternNode& part) { return Spell(part, &text); }))
      return false;
    texts->push_back(std::move(text));
    return true;
  }
  bool AddText(const PatternNode& part, std::vector<std::string>* texts) const {
    return AddText(std::span(&part, 1), texts);
  }

 private:
  bool Spell(const PatternNode& node, std::string* text) const {
    if (node.kind == Kind::kSequence) {
      return std::ranges::all_of(node.parts,
                                 [&](const PatternNode& part) { return Spell(part, text); });
    }
    const auto& ranges = node.set.ranges();
    const bool single =
        node.kind == Kind::kSet && ranges.size() == 1 && ranges[0].first == ranges[0].second;
    if (single) text->append(SpellOne(ranges[0].first, spelling_));
    return single;
  }
  StatusOr<RegexId> BuildSequence(const PatternNode& node, RegexId rest, bool at_begin) {
    for (size_t i = node.parts.size(); i-- > 0;) {
      bool begin = at_begin;
      for (size_t j = 0; j < i; ++j) begin = begin && node.parts[j].kind >= Kind::kBegin;
      WEFT_ASSIGN_OR_RETURN(rest, Build(node.parts[i], rest, begin));
    }
    return rest;
  }

  RegexPool* pool_;
  Spelling spelling_;
  RegexId anything_;
};

StatusOr<PatternNode> ParsePattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Unimplemented("patterns of more than ", kMaxPatternBytes, " bytes are not supported");
  }
  return PatternParser(pattern).Parse();
}

bool BeginsAnchored(const PatternNode& node) {
  if (node.kind == Kind::kBegin) return true;
  return node.kind == Kind::kSequence && !node.parts.empty() && BeginsAnchored(node.parts[0]);
}

bool LooksAhead(const PatternNode& node) {
  return node.kind == Kind::kAhead || node.kind == Kind::kNotAhead ||
         std::ranges::any_of(node.parts, LooksAhead);
}

// Unwraps groups of a single part.
PatternNode& Bare(PatternNode* node) {
  while (node->parts.size() == 1 &&
         (node->kind == Kind::kSequence ||
          (node->kind == Kind::kRepeat && node->least == 1 && node->most == 1))) {
    node = &node->parts[0];
  }
  return *node;
}

// The alternatives of a pattern, including those in nested groups.
void AddChoices(PatternNode* node, std::vector<const PatternNode*>* choices) {
  PatternNode& bare = Bare(node);
  if (bare.kind != PatternNode::Kind::kChoice) return choices->push_back(&bare);
  for (PatternNode& part : bare.parts) AddChoices(&part, choices);
}

enum class Fit : uint8_t { kUnknown, kNever, kFits };

// Limits a pattern such as ^[a-z][a-z0-9]*$ to texts of `least` to `most` characters, by the bounds
// of its only part of variable length.
Fit FitLength(PatternNode* node, int32_t least, int32_t most) {
  auto& parts = node->parts;
  if (node->kind != Kind::kSequence || parts.size() < 3 || parts.front().kind != Kind::kBegin ||
      parts.back().kind != Kind::kEnd) {
    return Fit::kUnknown;
  }
  PatternNode* free = nullptr;
  int64_t fixed = 0;
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    PatternNode& part = Bare(&parts[i]);
    if (part.kind == Kind::kSet) {
      ++fixed;
    } else if (part.kind != Kind::kRepeat || Bare(&part.parts[0]).kind != Kind::kSet) {
      return Fit::kUnknown;
    } else if (part.least == part.most) {
      fixed += part.least;
    } else if (free != nullptr) {
      return Fit::kUnknown;
    } else {
      free = &part;
    }
  }
  if (most != kUnlimited && fixed > most) return Fit::kNever;
  if (free == nullptr) return fixed < least ? Fit::kNever : Fit::kFits;
  free->least = static_cast<int32_t>(std::max<int64_t>(free->least, least - fixed));
  if (most != kUnlimited) {
    const auto room = static_cast<int32_t>(most - fixed);
    free->most = free->most == kUnlimited ? room : std::min(free->most, room);
  }
  return free->most != kUnlimited && free->least > free->most ? Fit::kNever : Fit::kFits;
}

// Whether it is independent of its context.
bool StandsAlone(const PatternNode& node) {
  return node.kind < Kind::kBegin && std::ranges::all_of(node.parts, StandsAlone);
}

}  // namespace

StatusOr<RegexId> JsonStringsMatching(RegexPool* pool, std::string_view pattern, int32_t least,
                                      int32_t most) {
  WEFT_ASSIGN_OR_RETURN(PatternNode node, ParsePattern(pattern));
  if (least > 0 || most != kUnlimited) {
    const Fit fit = FitLength(&node, least, most);
    if (fit == Fit::kNever) return kNothing;
    if (fit == Fit::kUnknown) {
      WEFT_ASSIGN_OR_RETURN(const RegexId matching, JsonStringsMatching(pool, pattern));
      return pool->And({QuotedJson(pool, least, most), matching});
    }
  }
  PatternBuilder builder(pool, Spelling::kJson);
  const RegexId unit = OneOf(pool, CharSet::All(), Spelling::kJson), quote = pool->Byte('"');
  const RegexId any = pool->Repeat(unit, 0, kUnlimited);
  const RegexId before = pool->Repeat(pool->Or({unit, quote}), 0, kUnlimited);
  std::vector<RegexId> plain, others;
  std::array<std::vector<std::string>, 4> texts;  // bit 1: anchored at the start, bit 0: at the end
  const auto add = [&](bool begins, bool ends, RegexId match) {
    const RegexId all = pool->Concat(match, ends ? quote : pool->Concat(any, quote));
    plain.push_back(pool->Concat(quote, begins ? all : pool->Concat(any, all)));
  };
  std::vector<const PatternNode*> choices;
  AddChoices(&node, &choices);
  for (const PatternNode* const choice : choices) {
    const PatternNode& part = *choice;
    std::span<const PatternNode> parts(choice, 1);
    if (part.kind == Kind::kSequence) parts = part.parts;
    const bool begins = !parts.empty() && parts.front().kind == Kind::kBegin;
    if (begins) parts = parts.subspan(1);
    const bool ends = !parts.empty() && parts.back().kind == Kind::kEnd;
    if (ends) parts = parts.first(parts.size() - 1);
    if (builder.AddText(parts, &texts[(begins ? 2 : 0) + (ends ? 1 : 0)])) continue;
    if (std::ranges::all_of(parts, StandsAlone)) {
      WEFT_ASSIGN_OR_RETURN(const RegexId match, builder.BuildAlone(parts));
      add(begins, ends, match);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const RegexId match, builder.Build(part, pool->Anything(), true));
    others.push_back(BeginsAnchored(part) ? match : pool->Concat(before, match));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) add(i >= 2, i % 2 == 1, pool->AnyOf(texts[i]));
  }
  // With assertions inside, the rest may be something other than a string.
  if (!others.empty()) {
    plain.push_back(pool->And({pool->Concat({quote, any, quote}), pool->Or(std::move(others))}));
  }
  return pool->Or(std::move(plain));
}

StatusOr<RegexId> WholeTextsMatching(RegexPool* pool, std::string_view pattern) {
  WEFT_ASSIGN_OR_RETURN(const PatternNode node, ParsePattern(pattern));
  WEFT_ASSIGN_OR_RETURN(const RegexId match,
                        PatternBuilder(pool, Spelling::kPlain).Build(node, kEmpty, true));
  if (!LooksAhead(node)) return match;
  // Complements are relative to valid UTF-8 texts, not to all byte sequences.
  const RegexId text = pool->Repeat(OneOf(pool, CharSet::All(), Spelling::kPlain), 0, kUnlimited);
  return pool->And({text, match});
}

StatusOr<CharSet> ReadCharClass(std::string_view text, size_t* at) {
  PatternParser parser(text.substr(*at + 1));
  WEFT_ASSIGN_OR_RETURN(CharSet set, parser.ParseClass());
  *at += 1 + parser.at();
  return set;
}

}  // namespace weft::constraint
