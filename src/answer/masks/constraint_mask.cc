#include "answer/masks/constraint_mask.h"

#include <algorithm>
#include <string>
#include <utility>

#include "constraint/constraint_cache.h"
#include "model/tokenizer/tokens_behind.h"

namespace weft {
namespace {

using constraint::Constraint;
using constraint::ConstraintOptions;
using constraint::ConstraintState;
using constraint::Structure;
using constraint::TokenTable;

// Longer text is forced over several steps.
constexpr size_t kMaxForcedBytes = 256;

Structure WholeOf(const ConstraintSpec& spec) {
  switch (spec.kind) {
    case ConstraintSpec::Kind::kJsonSchema:
      return Structure::Value({.schema = spec.text, .path = {}});
    case ConstraintSpec::Kind::kRegex:
      return Structure::Pattern(spec.text);
    case ConstraintSpec::Kind::kGrammar:
      return Structure::FromGrammar(spec.text);
    case ConstraintSpec::Kind::kChoice:
      break;
  }
  std::vector<Structure> texts;
  for (const std::string& text : spec.choices) texts.push_back(Structure::Literal(text));
  return Structure::OneOf(std::move(texts));
}

}  // namespace

std::string KeyOf(const ConstraintSpec& spec) {
  std::string key = {static_cast<char>('0' + static_cast<int>(spec.kind)),
                     spec.any_property_order ? 'a' : 's', spec.compact ? 'c' : 'o'};
  key += std::to_string(spec.text.size()) + ':' + spec.text;
  for (const ConstraintSpec::Trigger& trigger : spec.triggers) {
    key +=
        (trigger.is_pattern ? 'p' : 'w') + std::to_string(trigger.text.size()) + ':' + trigger.text;
  }
  for (const std::string& choice : spec.choices) {
    key += std::to_string(choice.size()) + ':' + choice;
  }
  return key;
}

ConstraintOptions OptionsOf(const ConstraintSpec& spec) {
  ConstraintOptions options;
  if (spec.any_property_order) options.property_order = constraint::PropertyOrder::kAny;
  if (spec.compact) options.white_space = constraint::WhiteSpace::kCompact;
  return options;
}

Structure StructureOf(const ConstraintSpec& spec) {
  const Structure whole = WholeOf(spec);
  if (spec.triggers.empty()) return whole;
  constraint::FreeText before;
  for (const ConstraintSpec::Trigger& trigger : spec.triggers) {
    (trigger.is_pattern ? before.without_patterns : before.without).push_back(trigger.text);
  }
  const Structure text = Structure::Text(before);
  return Structure::OneOf({text, Structure::Sequence({text, whole})});
}

StatusOr<std::shared_ptr<const Constraint>> CompileConstraint(const Model& model,
                                                              const ConstraintSpec& spec,
                                                              std::string_view tenant) {
  const ConstraintOptions options = OptionsOf(spec);
  const auto make = [&](std::shared_ptr<const TokenTable> table) {
    if (!spec.triggers.empty()) {
      return Constraint::Structured(StructureOf(spec), options, std::move(table));
    }
    switch (spec.kind) {
      case ConstraintSpec::Kind::kJsonSchema:
        return Constraint::JsonSchema(spec.text, options, std::move(table));
      case ConstraintSpec::Kind::kRegex:
        return Constraint::Regex(spec.text, options, std::move(table));
      case ConstraintSpec::Kind::kGrammar:
        return Constraint::FromGrammar(spec.text, options, std::move(table));
      case ConstraintSpec::Kind::kChoice:
        break;
    }
    return Constraint::Choice(spec.choices, options, std::move(table));
  };
  return model.constraints().Get(tenant, KeyOf(spec), make);
}

absl::StatusOr<TokenMaskFactory> MakeConstraint(const Model& model, const ConstraintSpec& spec,
                                                std::string_view begun) {
  WEFT_ASSIGN_OR_RETURN(const auto compiled, CompileConstraint(model, spec));
  ConstraintState state = compiled->Begin();
  if (!begun.empty() && !state.AdvanceText(begun)) {
    return InvalidArgument("the answer that is begun is not what the constraint allows, from byte ",
                           state.AllowedPrefix(begun), " on");
  }
  return MaskOf(model.tokenizer(), std::move(state));
}

TokenMaskFactory MaskOf(std::shared_ptr<const Tokenizer> tokenizer, ConstraintState state) {
  return [tokenizer = std::move(tokenizer), state = std::move(state)](int) {
    return std::make_unique<ConstraintMask>(tokenizer, state);
  };
}

// The mask allows only what the state would accept, yet the state can still fail to follow: if an
// automaton hits one of its limits after allowed tokens, or if tokens are taken without asking the
// mask.
void ConstraintMask::Follow(std::span<const int32_t> generated) {
  for (; !lost_ && n_seen_ < generated.size(); ++n_seen_) {
    lost_ = !state_.Advance(generated[n_seen_]);
  }
}

void ConstraintMask::Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) {
  Follow(generated);
  if (lost_) {
    std::ranges::fill(allowed, 0u);
    return;
  }
  const size_t words = state_.constraint().tokens().mask_words();
  state_.FillMask(allowed.first(words));
  std::fill(allowed.begin() + static_cast<ptrdiff_t>(words), allowed.end(), 0u);
}

bool ConstraintMask::Allows(std::span<const int32_t> generated, std::span<const int32_t> next) {
  Follow(generated);
  if (lost_) return next.empty();
  size_t taken = 0;
  while (taken < next.size() && state_.Advance(next[taken])) ++taken;
  state_.Rollback(taken);
  return taken == next.size();
}

std::vector<int32_t> ConstraintMask::Forced(std::span<const int32_t> generated) {
  Follow(generated);
  if (lost_) return {};
  const std::string text = state_.ForcedText(kMaxForcedBytes);
  if (text.size() < 2) return {};
  std::vector<int32_t> tokens = TokensBehind(*tokenizer_, text);
  if (!tokens.empty()) tokens.pop_back();
  return tokens;
}

}  // namespace weft
