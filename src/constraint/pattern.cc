#include "constraint/pattern.h"

#include <utility>
#include <vector>

#include "constraint/pattern_parser.h"

namespace weft::constraint {
namespace {

using Kind = PatternNode::Kind;

// From a pattern's parts to an expression of what they and all that follows accept. In a JSON
// string the assertions ^ and $ are the quotation marks, which no character is spelled with.
class PatternBuilder {
 public:
  PatternBuilder(RegexPool* pool, Spelling spelling) : pool_(pool), spelling_(spelling) {
    // Behind the match of a pattern anything may come.
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
        for (const PatternNode& part : node.parts) {
          WEFT_ASSIGN_OR_RETURN(const RegexId built, Build(part, rest, at_begin));
          parts.push_back(built);
        }
        return pool_->Or(std::move(parts));
      }
      case Kind::kRepeat: {
        if (node.least == 1 && node.most == 1) return Build(node.parts[0], rest, at_begin);
        WEFT_ASSIGN_OR_RETURN(const RegexId body, BuildRepeated(node.parts[0]));
        return pool_->Concat(pool_->Repeat(body, node.least, node.most), rest);
      }
      case Kind::kBegin:
        if (spelling_ == Spelling::kJson) return pool_->Concat(pool_->Byte('"'), rest);
        if (!at_begin) return Unimplemented("^ behind the beginning is not supported");
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

 private:
  StatusOr<RegexId> BuildSequence(const PatternNode& node, RegexId rest, bool at_begin) {
    for (size_t i = node.parts.size(); i-- > 0;) {
      bool begin = at_begin;
      for (size_t j = 0; j < i; ++j) begin = begin && node.parts[j].kind >= Kind::kBegin;
      WEFT_ASSIGN_OR_RETURN(rest, Build(node.parts[i], rest, begin));
    }
    return rest;
  }

  // What is repeated stands alone: nothing in it may speak of its surroundings.
  StatusOr<RegexId> BuildRepeated(const PatternNode& node) {
    switch (node.kind) {
      case Kind::kAhead:
      case Kind::kNotAhead:
        return Unimplemented("look-ahead inside of a repetition is not supported");
      case Kind::kBegin:
      case Kind::kEnd:
        return Unimplemented("^ and $ inside of a repetition are not supported");
      case Kind::kSequence: {
        RegexId all = kEmpty;
        for (size_t i = node.parts.size(); i-- > 0;) {
          WEFT_ASSIGN_OR_RETURN(const RegexId part, BuildRepeated(node.parts[i]));
          all = pool_->Concat(part, all);
        }
        return all;
      }
      case Kind::kChoice: {
        std::vector<RegexId> parts;
        for (const PatternNode& part : node.parts) {
          WEFT_ASSIGN_OR_RETURN(const RegexId built, BuildRepeated(part));
          parts.push_back(built);
        }
        return pool_->Or(std::move(parts));
      }
      case Kind::kRepeat: {
        WEFT_ASSIGN_OR_RETURN(const RegexId body, BuildRepeated(node.parts[0]));
        return pool_->Repeat(body, node.least, node.most);
      }
      case Kind::kSet:
        return OneOf(pool_, node.set, spelling_);
    }
    return kNothing;
  }

  RegexPool* pool_;
  Spelling spelling_;
  RegexId anything_;
};

StatusOr<PatternNode> ParsePattern(std::string_view pattern) {
  if (pattern.size() > kMostPatternBytes) {
    return Unimplemented("patterns of more than ", kMostPatternBytes, " bytes are not supported");
  }
  return PatternParser(pattern).Parse();
}

bool BeginsAnchored(const PatternNode& node) {
  if (node.kind == Kind::kBegin) return true;
  return node.kind == Kind::kSequence && !node.parts.empty() && BeginsAnchored(node.parts[0]);
}

}  // namespace

StatusOr<RegexId> JsonStringsMatching(RegexPool* pool, std::string_view pattern) {
  WEFT_ASSIGN_OR_RETURN(const PatternNode node, ParsePattern(pattern));
  PatternBuilder builder(pool, Spelling::kJson);
  const RegexId unit = OneOf(pool, CharSet::All(), Spelling::kJson);
  const RegexId before = pool->Repeat(pool->Or({unit, pool->Byte('"')}), 0, kUnlimited);
  std::vector<RegexId> found;
  const size_t choices = node.kind == Kind::kChoice ? node.parts.size() : 1;
  for (size_t i = 0; i < choices; ++i) {
    const PatternNode& part = node.kind == Kind::kChoice ? node.parts[i] : node;
    WEFT_ASSIGN_OR_RETURN(const RegexId match, builder.Build(part, pool->Anything(), true));
    found.push_back(BeginsAnchored(part) ? match : pool->Concat(before, match));
  }
  return pool->And({QuotedJson(pool, 0, kUnlimited), pool->Or(std::move(found))});
}

StatusOr<RegexId> WholeTextsMatching(RegexPool* pool, std::string_view pattern) {
  WEFT_ASSIGN_OR_RETURN(const PatternNode node, ParsePattern(pattern));
  WEFT_ASSIGN_OR_RETURN(const RegexId match,
                        PatternBuilder(pool, Spelling::kPlain).Build(node, kEmpty, true));
  // Complements (of a look-ahead) are of texts, not of bytes.
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
