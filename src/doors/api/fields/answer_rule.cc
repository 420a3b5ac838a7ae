#include "doors/api/fields/answer_rule.h"

#include <utility>

#include "answer/masks/constraint_mask.h"
#include "answer/reply_mask.h"
#include "base/strings.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

// More than any real list; the automaton for all choices is built before the answer begins.
constexpr size_t kMaxChoiceTexts = 10'000;

std::optional<AnswerRule> TextRule(ApiFields* fields, const char* name, ConstraintSpec::Kind kind) {
  auto text = fields->String(name);
  if (!text || text->empty()) return std::nullopt;
  return AnswerRule{{.kind = kind, .text = *std::move(text)}, name};
}

std::optional<AnswerRule> SchemaField(ApiFields* fields, const char* name) {
  const ordered_json* const schema = fields->Value(name);
  if (schema == nullptr || *schema == "") return std::nullopt;
  auto rule = SchemaRule(*schema, name);
  if (!rule) fields->Fail(name, "must be a JSON Schema, given as an object or as JSON text");
  return rule;
}

std::optional<AnswerRule> ChoiceField(ApiFields* fields, const char* name) {
  const ordered_json* const choices = fields->Value(name);
  if (choices == nullptr || (choices->is_array() && choices->empty())) return std::nullopt;
  ConstraintSpec spec{.kind = ConstraintSpec::Kind::kChoice};
  bool fits = choices->is_array() && choices->size() <= kMaxChoiceTexts;
  for (size_t i = 0; fits && i < choices->size(); ++i) {
    fits = (*choices)[i].is_string();
    if (fits) spec.choices.push_back((*choices)[i].get<std::string>());
  }
  if (!fits) {
    fields->Fail(name, StrCat("must be an array of at most ", kMaxChoiceTexts, " strings"));
    return std::nullopt;
  }
  return AnswerRule{std::move(spec), name};
}

// Collects a request's rules; only one is allowed.
class Rules {
 public:
  explicit Rules(ApiFields* fields) : fields_(*fields) {}
  void Add(std::optional<AnswerRule> rule) {
    if (!rule) return;
    if (rule_) {
      fields_.Fail(rule->field,
                   StrCat("cannot be combined with ", rule_->field, "; use only one of them"));
      return;
    }
    rule_ = std::move(rule);
  }
  std::optional<AnswerRule> Take() { return std::move(rule_); }

 private:
  ApiFields& fields_;
  std::optional<AnswerRule> rule_;
};

// {"json" | "regex" | "choice" | "grammar" | "json_object": ...}
std::optional<AnswerRule> ReadStructuredOutputs(ApiFields* fields) {
  const ordered_json* const outputs = fields->Value("structured_outputs");
  if (outputs == nullptr) return std::nullopt;
  ApiFields inner(*outputs, "structured_outputs.");
  Rules rules(&inner);
  rules.Add(SchemaField(&inner, "json"));
  rules.Add(TextRule(&inner, "regex", ConstraintSpec::Kind::kRegex));
  rules.Add(ChoiceField(&inner, "choice"));
  rules.Add(TextRule(&inner, "grammar", ConstraintSpec::Kind::kGrammar));
  if (inner.Bool("json_object").value_or(false)) rules.Add(ObjectRule("json_object"));
  const bool compact = inner.Bool("disable_any_whitespace").value_or(false);
  inner.Refuse("structural_tag", "is not supported; use tools, or a grammar");
  inner.Refuse("whitespace_pattern", "is not supported; use disable_any_whitespace");
  inner.Refuse("disable_additional_properties", "is not supported; put it into the schema", false);
  std::vector<std::string> ignored;
  fields->Adopt(inner.Finish(&ignored));
  for (const std::string& name : ignored) fields->Ignore(name);
  auto rule = rules.Take();
  if (rule) {
    rule->field = "structured_outputs." + rule->field;
    rule->spec.compact = compact;
  }
  return rule;
}

// llama-server's triggers, whose kinds are numbers.
void ReadTriggers(ApiFields* fields, std::vector<ConstraintSpec::Trigger>* triggers) {
  constexpr int kToken = 0, kWord = 1, kPattern = 2;
  static constexpr const char* kField = "grammar_triggers";
  const bool lazy = fields->Bool("grammar_lazy").value_or(false);
  const ordered_json* const list = fields->Value(kField);
  if (!lazy) return;
  if (list == nullptr || !list->is_array() || list->empty()) {
    return fields->Fail(kField, "must be a list of triggers for the lazy grammar");
  }
  for (const ordered_json& each : *list) {
    const ordered_json type =
        each.is_object() ? each.value("type", ordered_json()) : ordered_json();
    const std::string text = StringOr(each, "value");
    if (text.empty() || (type != kToken && type != kWord && type != kPattern)) {
      return fields->Fail(
          kField,
          "must have entries such as {\"type\": 1, \"value\": \"<call>\"}: of type 0 "
          "or 1 a text, of type 2 a regular expression");
    }
    triggers->push_back({text, type == kPattern});
  }
}

}  // namespace

std::optional<AnswerRule> SchemaRule(const ordered_json& schema, std::string field) {
  if (schema.is_string()) {
    return AnswerRule{{.text = schema.get<std::string>()}, std::move(field)};
  }
  if (!schema.is_object() && !schema.is_boolean()) return std::nullopt;
  return AnswerRule{{.text = CompactJson(schema)}, std::move(field)};
}

AnswerRule ObjectRule(std::string field) {
  return {{.text = R"({"type":"object"})"}, std::move(field)};
}

std::optional<AnswerRule> ReadFormat(ApiFields* fields, const char* name) {
  const ordered_json* const format = fields->Value(name);
  if (format == nullptr) return std::nullopt;
  const std::string type = StringOr(*format, "type");
  if (type == "text") return std::nullopt;
  const auto given = [](const ordered_json& from) -> const ordered_json* {
    if (!from.is_object()) return nullptr;
    const auto it = from.find("schema");
    return it == from.end() || it->is_null() ? nullptr : &*it;
  };
  if (type == "json_object") {
    const ordered_json* const schema = given(*format);  // llama-server's own field
    if (schema == nullptr) return ObjectRule(name);
    auto rule = SchemaRule(*schema, StrCat(name, ".schema"));
    if (!rule) fields->Fail(name, "must have an object as its schema");
    return rule;
  }
  if (type != "json_schema") {
    fields->Fail(name, "must be an object of type \"text\", \"json_object\" or \"json_schema\"");
    return std::nullopt;
  }
  const auto inner = format->find("json_schema");
  const bool is_nested = inner != format->end();
  const ordered_json* const schema = given(is_nested ? *inner : *format);
  const std::string place = StrCat(name, is_nested ? ".json_schema.schema" : ".schema");
  std::optional<AnswerRule> rule;
  if (schema != nullptr) rule = SchemaRule(*schema, place);
  if (!rule) fields->Fail(name, StrCat("needs a JSON Schema, an object, as ", place));
  return rule;
}

void CheckGoesWith(const TurnOptions& turn, ApiFields* fields) {
  static constexpr std::string_view kEnds =
      "cannot be combined with an answer of a required form, which ends when the form is complete";
  if (turn.ignore_eos) fields->Fail("ignore_eos", kEnds);
  if (turn.min_tokens > 0) fields->Fail("min_tokens", kEnds);
}

std::optional<AnswerRule> ReadAnswerRule(ApiFields* fields, const TurnOptions& turn) {
  Rules rules(fields);
  rules.Add(ReadFormat(fields, "response_format"));
  rules.Add(SchemaField(fields, "json_schema"));
  rules.Add(TextRule(fields, "grammar", ConstraintSpec::Kind::kGrammar));
  rules.Add(SchemaField(fields, "guided_json"));
  rules.Add(TextRule(fields, "guided_regex", ConstraintSpec::Kind::kRegex));
  rules.Add(ChoiceField(fields, "guided_choice"));
  rules.Add(TextRule(fields, "guided_grammar", ConstraintSpec::Kind::kGrammar));
  rules.Add(ReadStructuredOutputs(fields));
  rules.Add(TextRule(fields, "regex", ConstraintSpec::Kind::kRegex));
  rules.Add(TextRule(fields, "ebnf", ConstraintSpec::Kind::kGrammar));
  fields->CannotMatter({"guided_decoding_backend"});
  std::vector<ConstraintSpec::Trigger> triggers;
  ReadTriggers(fields, &triggers);
  auto rule = rules.Take();
  if (!triggers.empty() && (!rule || rule->spec.kind != ConstraintSpec::Kind::kGrammar)) {
    fields->Fail("grammar_lazy", "requires a grammar, and there is none");
  } else if (!triggers.empty()) {
    rule->spec.triggers = std::move(triggers);
  }
  if (rule) CheckGoesWith(turn, fields);
  return rule;
}

void AddAnswerRule(ApiFields* fields, const TurnOptions& turn, std::optional<AnswerRule>* answer) {
  auto rule = ReadAnswerRule(fields, turn);
  if (rule && *answer) {
    fields->Fail(rule->field, StrCat("cannot be combined with ", (*answer)->field));
  } else if (rule) {
    *answer = std::move(rule);
  }
}

void ReadTextRule(ApiFields* fields, const Model& model, std::string_view tenant,
                  TurnOptions* turn) {
  const auto rule = ReadAnswerRule(fields, *turn);
  if (!rule || !fields->ok()) return;
  auto state = BeginAnswer(model, *rule, "", tenant);
  if (!state.ok()) return fields->Adopt(state.status());
  turn->token_mask = MaskOf(model.tokenizer(), *std::move(state));
}

}  // namespace weft::serve
