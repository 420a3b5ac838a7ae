#include "constraint/structure.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "constraint/constraint.h"
#include "constraint/grammar/grammar.h"
#include "constraint/regex/characters.h"
#include "constraint/regex/pattern.h"
#include "constraint/regex/walk.h"
#include "constraint/schema/schema_compiler.h"
#include "constraint/token_table.h"

namespace weft::constraint {

Structure Structure::Literal(std::string bytes) {
  return Structure(Node{.kind = Kind::kLiteral, .text = std::move(bytes)});
}

Structure Structure::Pattern(std::string regex) {
  return Structure(Node{.kind = Kind::kPattern, .text = std::move(regex)});
}

Structure Structure::FromGrammar(std::string grammar, TextStyle style) {
  return Structure(
      Node{.kind = Kind::kGrammar, .text = std::move(grammar), .written = std::move(style)});
}

Structure Structure::Value(SchemaPart schema, ValueStyle style, ValueKinds kinds) {
  return Structure(Node{.kind = Kind::kValue,
                        .schema = std::move(schema),
                        .style = std::move(style),
                        .kinds = kinds});
}

Structure Structure::Strings(RawStrings strings) {
  return Structure(Node{.kind = Kind::kStrings, .strings = std::move(strings)});
}

Structure Structure::Text(FreeText text) {
  return Structure(Node{.kind = Kind::kText, .free = std::move(text)});
}

Structure Structure::TextUntil(FreeText text, std::string marker) {
  return Structure(
      Node{.kind = Kind::kTextUntil, .text = std::move(marker), .free = std::move(text)});
}

Structure Structure::TextUntilPattern(FreeText text, std::string marker) {
  return Structure(
      Node{.kind = Kind::kTextUntilPattern, .text = std::move(marker), .free = std::move(text)});
}

Structure Structure::Sequence(std::vector<Structure> parts) {
  if (parts.size() == 1) return parts[0];
  return Structure(Node{.kind = Kind::kSequence, .parts = std::move(parts)});
}

Structure Structure::OneOf(std::vector<Structure> parts) {
  if (parts.size() == 1) return parts[0];
  return Structure(Node{.kind = Kind::kOneOf, .parts = std::move(parts)});
}

Structure Structure::Repeat(Structure part, int32_t least, int32_t most) {
  return Structure(
      Node{.kind = Kind::kRepeat, .parts = {std::move(part)}, .least = least, .most = most});
}

class StructureCompiler {
 public:
  StructureCompiler(const ConstraintOptions& options, Grammar* grammar)
      : options_(options), grammar_(*grammar), pool_(grammar->pool()) {
    text_ =
        pool_.Repeat(constraint::OneOf(&pool_, CharSet::All(), Spelling::kPlain), 0, kUnlimited);
    some_bytes_ = pool_.Concat(pool_.Bytes(ByteSet::All()), pool_.Anything());
  }

  Status Compile(const Structure& structure) {
    const RuleId start = grammar_.AddRule();
    WEFT_ASSIGN_OR_RETURN(const Symbol all, SymbolOf(structure));
    grammar_.AddAlternative(start, {all});
    return grammar_.Finish(start, LayoutOf(&pool_, options_.white_space));
  }

  std::vector<int32_t> controls() {
    std::ranges::sort(controls_);
    controls_.erase(std::unique(controls_.begin(), controls_.end()), controls_.end());
    return std::move(controls_);
  }

 private:
  using Node = Structure::Node;
  using Kind = Structure::Kind;

  StatusOr<Symbol> SymbolOf(const Structure& part) {
    const Node* const node = part.node_.get();
    if (const auto known = symbols_.find(node); known != symbols_.end()) return known->second;
    if (pool_.budget().exhausted() || grammar_.bytes() > options_.max_bytes) {
      return TooMuchToCompile();
    }
    WEFT_ASSIGN_OR_RETURN(const Symbol symbol, NewSymbol(*node));
    symbols_.emplace(node, symbol);
    return symbol;
  }

  StatusOr<Symbol> NewSymbol(const Node& node) {
    switch (node.kind) {
      case Kind::kLiteral:
        return grammar_.Terminal(LiteralOf(node.text));
      case Kind::kPattern: {
        WEFT_ASSIGN_OR_RETURN(const RegexId pattern, PatternOf(node.text));
        return grammar_.Terminal(pattern);
      }
      case Kind::kGrammar: {
        const auto root = AddWrittenGrammar(node.text, node.written, &grammar_);
        if (!root.ok()) return Annotate(root.status(), "grammar: ");
        return grammar_.Call(*root);
      }
      case Kind::kValue: {
        LiteralOf(node.style.quote);  // it may contain a control token
        WEFT_ASSIGN_OR_RETURN(const RuleId value, AddSchema(node.schema, node.style, node.kinds,
                                                            options_, &documents_, &grammar_));
        return grammar_.Call(value);
      }
      case Kind::kStrings: {
        WEFT_ASSIGN_OR_RETURN(const RegexId strings, StringsOf(node.strings));
        return grammar_.Terminal(strings);
      }
      case Kind::kText:
      case Kind::kTextUntil:
      case Kind::kTextUntilPattern: {
        WEFT_ASSIGN_OR_RETURN(const RegexId text, TextOf(node));
        return grammar_.Terminal(text);
      }
      case Kind::kSequence: {
        std::vector<Symbol> symbols;
        for (const Structure& part : node.parts) {
          WEFT_ASSIGN_OR_RETURN(const Symbol symbol, SymbolOf(part));
          symbols.push_back(symbol);
        }
        const RuleId rule = grammar_.AddRule();
        grammar_.AddAlternative(rule, symbols);
        return grammar_.Call(rule);
      }
      case Kind::kOneOf: {
        const RuleId rule = grammar_.AddRule();
        for (const Structure& part : node.parts) {
          WEFT_ASSIGN_OR_RETURN(const Symbol symbol, SymbolOf(part));
          grammar_.AddAlternative(rule, {symbol});
        }
        return grammar_.Call(rule);
      }
      case Kind::kRepeat: {
        WEFT_ASSIGN_OR_RETURN(const Symbol symbol, SymbolOf(node.parts[0]));
        const RuleId rule = grammar_.AddRule();
        grammar_.AddAlternative(rule, {symbol});
        return grammar_.Repeat({rule, node.least, node.most});
      }
    }
    return Symbol{};
  }

  RegexId LiteralOf(const std::string& bytes) {
    for (size_t at = bytes.find(kControlLead); at != bytes.npos;
         at = bytes.find(kControlLead, at + 1)) {
      const TokenId id = ControlAt(std::string_view(bytes).substr(at));
      if (id != kNoToken) controls_.push_back(id);
    }
    return pool_.Literal(bytes);
  }

  StatusOr<RegexId> PatternOf(const std::string& pattern) {
    const auto [it, added] = patterns_.try_emplace(pattern, kNothing);
    if (!added) return it->second;
    WEFT_ASSIGN_OR_RETURN(it->second, WholeTextsMatching(&pool_, pattern));
    return it->second;
  }

  // All texts that contain `part` followed directly by `behind`.
  RegexId Containing(RegexId part, RegexId behind) {
    return pool_.Concat({pool_.Anything(), part, behind});
  }

  StatusOr<RegexId> TextOf(const Node& node) {
    RegexId marker = kEmpty;
    std::vector<RegexId> excluded;
    for (const std::string& text : node.free.without) excluded.push_back(pool_.Literal(text));
    if (node.kind == Kind::kTextUntil) {
      marker = LiteralOf(node.text);
      if (node.text.find(kControlLead) == node.text.npos) excluded.push_back(marker);
    } else if (node.kind == Kind::kTextUntilPattern) {
      WEFT_ASSIGN_OR_RETURN(marker, PatternOf(node.text));
      excluded.push_back(marker);
    }
    for (const std::string& pattern : node.free.without_patterns) {
      WEFT_ASSIGN_OR_RETURN(const RegexId regex, PatternOf(pattern));
      excluded.push_back(regex);
    }
    std::vector<RegexId> all{pool_.Concat(text_, marker)};
    // The text must not contain these before its end, but the marker at its end may be one of them.
    const RegexId any = pool_.Or(std::move(excluded));
    const bool ends = node.kind == Kind::kText;
    if (any != kNothing)
      all.push_back(pool_.Not(Containing(any, ends ? pool_.Anything() : some_bytes_)));
    for (const std::string& pattern : node.free.unlike) {
      WEFT_ASSIGN_OR_RETURN(const RegexId regex, PatternOf(pattern));
      all.push_back(pool_.Not(pool_.Concat(regex, marker)));
    }
    return Live(pool_.And(std::move(all)));
  }

  StatusOr<RegexId> StringsOf(const RawStrings& wanted) {
    WEFT_ASSIGN_OR_RETURN(RegexId strings,
                          StringsOfSchema(wanted.schema, options_, &documents_, &grammar_));
    if (strings == kNothing) return kNothing;
    for (const std::string& pattern : wanted.unlike) {
      WEFT_ASSIGN_OR_RETURN(const RegexId regex, PatternOf(pattern));
      strings = pool_.AndNot(strings, regex);
    }
    const RegexId line = pool_.Byte('\n');
    switch (wanted.breaks) {
      case RawStrings::Breaks::kExact:
        break;
      case RawStrings::Breaks::kAround:
        strings = pool_.Concat({line, strings, line});
        break;
      case RawStrings::Breaks::kPossible: {
        const RegexId begins = pool_.Concat(line, pool_.Anything());
        const RegexId ends = pool_.Concat(pool_.Anything(), line);
        const RegexId begins_else = pool_.AndNot(strings, begins);
        const RegexId ends_else = pool_.AndNot(strings, ends);
        strings = pool_.Or({pool_.And({begins_else, ends_else}), pool_.Concat(line, ends_else),
                            pool_.Concat(begins_else, line), pool_.Concat({line, strings, line})});
        break;
      }
    }
    const RegexId close = LiteralOf(wanted.close);
    const RegexId text = pool_.Literal(wanted.close_text);
    return Live(pool_.And(
        {pool_.Concat(strings, close),
         pool_.Not(Containing(
             text, wanted.close == wanted.close_text ? some_bytes_ : pool_.Anything()))}));
  }

  RegexId Live(RegexId regex) { return pool_.walk().IsLive(regex) ? regex : kNothing; }

  const ConstraintOptions& options_;
  Grammar& grammar_;
  RegexPool& pool_;
  RegexId text_ = kNothing;        // any text
  RegexId some_bytes_ = kNothing;  // at least one byte
  SchemaDocuments documents_;
  std::map<const Node*, Symbol> symbols_;
  std::map<std::string, RegexId> patterns_;
  std::vector<int32_t> controls_;
};

Status CompileStructure(const Structure& structure, const ConstraintOptions& options,
                        Grammar* grammar, std::vector<int32_t>* controls) {
  StructureCompiler compiler(options, grammar);
  WEFT_RETURN_IF_ERROR(compiler.Compile(structure));
  *controls = compiler.controls();
  return OkStatus();
}

}  // namespace weft::constraint
