#include "answer/structural_tag.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "constraint/constraint_cache.h"
#include "constraint/token_table.h"
#include "json/json_fields.h"
#include "json/json_text.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using constraint::Structure;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 32;
constexpr int32_t kUnlimited = -1;

StatusOr<std::string> TextOf(const Json& format, const char* name, const std::string& place) {
  const auto found = format.find(name);
  if (found != format.end() && found->is_string()) return found->get<std::string>();
  return InvalidArgument(place, ".", name, " must be a string");
}

StatusOr<std::vector<Json>> ListOf(const Json& format, const char* name, const std::string& place) {
  const auto found = format.find(name);
  if (found != format.end() && found->is_array() && !found->empty()) {
    return found->get<std::vector<Json>>();
  }
  return InvalidArgument(place, place.empty() ? "" : ".", name, " must be a list, not empty");
}

StatusOr<bool> FlagOf(const Json& format, const char* name, const std::string& place) {
  const auto found = format.find(name);
  if (found == format.end()) return false;
  if (found->is_boolean()) return found->get<bool>();
  return InvalidArgument(place, place.empty() ? "" : ".", name, " must be true or false");
}

StatusOr<std::vector<std::string>> TextsOf(const Json& format, const char* name,
                                           const std::string& place) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Json> list, ListOf(format, name, place));
  std::vector<std::string> texts;
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      return InvalidArgument(place, place.empty() ? "" : ".", name,
                             " must be a list of strings, none of them empty");
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

// A key that is not known could forbid what would then be let through.
Status CheckKeys(const Json& format, const std::string& place,
                 const std::vector<std::string_view>& known) {
  for (const auto& [key, value] : format.items()) {
    if (key == "type" || std::ranges::find(known, key) != known.end()) continue;
    return Unimplemented(place, place.empty() ? "" : ".", Printable(key, 40),
                         " is not supported; leave it out");
  }
  return OkStatus();
}

// A format by its type, and the keys that it may have.
struct Form {
  std::string_view type;
  std::vector<std::string_view> keys;
};
const Form kForms[] = {
    {"sequence", {"elements"}},
    {"or", {"elements"}},
    {"tag", {"begin", "content", "end"}},
    {"triggered_tags", {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}},
    {"tags_with_separator", {"tags", "separator", "at_least_one", "stop_after_first"}},
    {"json_schema", {"json_schema", "style"}},
    {"regex", {"pattern"}},
    {"grammar", {"grammar"}},
    {"const_string", {"value"}},
    {"any_text", {"excludes"}},
};

std::string NamesOfForms() {
  std::string names;
  for (const Form& form : kForms) names += StrCat(names.empty() ? "" : ", ", form.type);
  return names;
}

// Empty if it has none.
std::string TypeOf(const Json& format) {
  if (!format.is_object()) return "";
  const auto found = format.find("type");
  return found != format.end() && found->is_string() ? found->get<std::string>() : "";
}

// Free text that may exclude texts.
StatusOr<constraint::FreeText> FreeTextOf(const Json& format, const std::string& place) {
  constraint::FreeText text;
  const auto excludes = format.find("excludes");
  if (excludes == format.end() || *excludes == Json::array()) return text;
  WEFT_ASSIGN_OR_RETURN(text.without, TextsOf(format, "excludes", place));
  return text;
}

Structure ValueOf(const Json& schema) {
  return Structure::Value({.schema = CompactJson(schema), .path = {}, .of = {}});
}

class TagReader {
 public:
  explicit TagReader(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  StatusOr<Structure> ReadWhole(const Json& whole) const {
    if (!whole.is_object()) return InvalidArgument("must be a JSON object");
    if (whole.contains("format")) {
      WEFT_RETURN_IF_ERROR(CheckKeys(whole, "", {"format"}));
      return Read(whole["format"], "format", 0);
    }
    WEFT_RETURN_IF_ERROR(CheckKeys(whole, "", {"triggers", "structures"}));
    return ReadTriggered(whole, "structures", "schema", "", 0);
  }

 private:
  Structure Text(std::string_view text) const { return Structure::Literal(LiteralOf(text)); }

  // The bytes of a literal text, in which control tokens stand for themselves.
  std::string LiteralOf(std::string_view text) const {
    std::string bytes;
    for (size_t at = 0; at < text.size();) {
      const TokenId control = ControlAt(text.substr(at));
      if (control == kNoToken) {
        bytes += text[at++];
      } else {
        bytes += constraint::ControlBytes(control);
        at += tokenizer_.Piece(control, /*render_special=*/true).size();
      }
    }
    return bytes;
  }

  // The control token with which the text begins: markers are short and end with a bracket.
  TokenId ControlAt(std::string_view text) const {
    if (text.empty() || (text[0] != '<' && text[0] != '[')) return kNoToken;
    const char close = text[0] == '<' ? '>' : ']';
    const size_t end = text.find(close);
    if (end == text.npos) return kNoToken;
    const TokenId id = tokenizer_.Find(text.substr(0, end + 1));
    return id != kNoToken && tokenizer_.IsControl(id) ? id : kNoToken;
  }

  StatusOr<Structure> Read(const Json& format, const std::string& place, int depth) const {
    if (depth > kMaxDepth) return InvalidArgument(place, " is nested too deeply");
    const std::string type = TypeOf(format);
    const auto* const form = std::ranges::find(kForms, type, &Form::type);
    if (form == std::end(kForms)) {
      return Unimplemented(place, " is of type '", Printable(type, 40),
                           "', which is not supported; use ", NamesOfForms());
    }
    WEFT_RETURN_IF_ERROR(CheckKeys(format, place, form->keys));
    if (type == "const_string") {
      WEFT_ASSIGN_OR_RETURN(const std::string value, TextOf(format, "value", place));
      return Text(value);
    }
    if (type == "json_schema") {
      if (!format.contains("json_schema")) return InvalidArgument(place, " has no json_schema");
      if (format.value("style", Json("json")) != "json") {
        return Unimplemented(place, ".style must be json");
      }
      return ValueOf(format["json_schema"]);
    }
    if (type == "regex") {
      WEFT_ASSIGN_OR_RETURN(std::string pattern, TextOf(format, "pattern", place));
      return Structure::Pattern(std::move(pattern));
    }
    if (type == "grammar") {
      WEFT_ASSIGN_OR_RETURN(std::string grammar, TextOf(format, "grammar", place));
      return Structure::FromGrammar(std::move(grammar));
    }
    if (type == "any_text") {
      WEFT_ASSIGN_OR_RETURN(constraint::FreeText text, FreeTextOf(format, place));
      return Structure::Text(std::move(text));
    }
    if (type == "tag") return ReadTag(format, "content", place, depth);
    if (type == "triggered_tags") return ReadTriggered(format, "tags", "content", place, depth);
    if (type == "tags_with_separator") return ReadSeparated(format, place, depth);
    return ReadElements(format, type, place, depth);
  }

  StatusOr<Structure> ReadElements(const Json& format, const std::string& type,
                                   const std::string& place, int depth) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Json> elements, ListOf(format, "elements", place));
    std::vector<Structure> parts;
    for (size_t i = 0; i < elements.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(Structure part,
                            Read(elements[i], StrCat(place, ".elements[", i, "]"), depth + 1));
      parts.push_back(std::move(part));
    }
    return type == "or" ? Structure::OneOf(std::move(parts))
                        : Structure::Sequence(std::move(parts));
  }

  // {"begin", CONTENT, "end"}, after the part of `begin` that is there already.
  StatusOr<Structure> ReadTag(const Json& tag, const char* content, const std::string& place,
                              int depth, size_t skip = 0) const {
    if (!tag.is_object() || !tag.contains(content)) {
      return InvalidArgument(place, " must have begin, ", content, " and end");
    }
    WEFT_RETURN_IF_ERROR(CheckKeys(tag, place, {"begin", content, "end"}));
    WEFT_ASSIGN_OR_RETURN(const std::string begin, TextOf(tag, "begin", place));
    WEFT_ASSIGN_OR_RETURN(const std::string end, TextOf(tag, "end", place));
    const bool is_schema = std::string_view(content) == "schema";
    StatusOr<Structure> inner = is_schema
                                    ? StatusOr<Structure>(ValueOf(tag[content]))
                                    : Read(tag[content], StrCat(place, ".content"), depth + 1);
    WEFT_RETURN_IF_ERROR(inner.status());
    const Structure after = Text(std::string_view(begin).substr(skip));
    // Free text goes on to the end mark.
    if (!is_schema && TypeOf(tag[content]) == "any_text" && !end.empty()) {
      WEFT_ASSIGN_OR_RETURN(constraint::FreeText text, FreeTextOf(tag[content], place));
      return Structure::Sequence({after, Structure::TextUntil(std::move(text), LiteralOf(end))});
    }
    return Structure::Sequence({after, *std::move(inner), Text(end)});
  }

  // The beginning of a tag that ends free text: its trigger, or a control token around that.
  StatusOr<std::string> MarkerOf(const Json& tag, const std::vector<std::string>& triggers,
                                 const std::string& place) const {
    WEFT_ASSIGN_OR_RETURN(const std::string begin,
                          TextOf(tag.is_object() ? tag : Json::object(), "begin", place));
    const auto trigger = std::ranges::find_if(
        triggers, [&](const std::string& each) { return begin.starts_with(each); });
    if (trigger == triggers.end()) {
      return InvalidArgument(place, ".begin starts with none of the triggers");
    }
    const std::string control = tokenizer_.Piece(ControlAt(begin), /*render_special=*/true);
    return control.size() > trigger->size() ? control : *trigger;
  }

  // Free text with tags in it, each after its trigger.
  StatusOr<Structure> ReadTriggered(const Json& format, const char* list, const char* content,
                                    const std::string& place, int depth) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Json> tags, ListOf(format, list, place));
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> triggers,
                          TextsOf(format, "triggers", place));
    WEFT_ASSIGN_OR_RETURN(constraint::FreeText text, FreeTextOf(format, place));
    text.without.insert(text.without.end(), triggers.begin(), triggers.end());
    std::map<std::string, std::vector<Structure>> of_marker;
    for (size_t i = 0; i < tags.size(); ++i) {
      const std::string where = StrCat(place, place.empty() ? "" : ".", list, "[", i, "]");
      WEFT_ASSIGN_OR_RETURN(const std::string marker, MarkerOf(tags[i], triggers, where));
      WEFT_ASSIGN_OR_RETURN(Structure rest, ReadTag(tags[i], content, where, depth, marker.size()));
      of_marker[marker].push_back(std::move(rest));
    }
    std::vector<Structure> calls, first;
    for (auto& [marker, tags_after] : of_marker) {
      const Structure rest = Structure::OneOf(std::move(tags_after));
      calls.push_back(Structure::Sequence({Structure::TextUntil(text, LiteralOf(marker)), rest}));
      first.push_back(Structure::Sequence({Text(marker), rest}));
    }
    const Structure call = Structure::OneOf(std::move(calls));
    WEFT_ASSIGN_OR_RETURN(const bool once, FlagOf(format, "stop_after_first", place));
    WEFT_ASSIGN_OR_RETURN(const bool at_least_one, FlagOf(format, "at_least_one", place));
    if (at_least_one) {
      const Structure begin = Structure::OneOf(std::move(first));
      if (once) return begin;
      return Structure::Sequence(
          {begin, Structure::Repeat(call, 0, kUnlimited), Structure::Text(text)});
    }
    if (once) return Structure::OneOf({Structure::Text(text), call});
    return Structure::Sequence({Structure::Repeat(call, 0, kUnlimited), Structure::Text(text)});
  }

  StatusOr<Structure> ReadSeparated(const Json& format, const std::string& place, int depth) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Json> tags, ListOf(format, "tags", place));
    WEFT_ASSIGN_OR_RETURN(const std::string separator, TextOf(format, "separator", place));
    std::vector<Structure> each;
    for (size_t i = 0; i < tags.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(Structure tag,
                            ReadTag(tags[i], "content", StrCat(place, ".tags[", i, "]"), depth));
      each.push_back(std::move(tag));
    }
    const Structure one = Structure::OneOf(std::move(each));
    const Structure more =
        Structure::Repeat(Structure::Sequence({Text(separator), one}), 0, kUnlimited);
    WEFT_ASSIGN_OR_RETURN(const bool once, FlagOf(format, "stop_after_first", place));
    WEFT_ASSIGN_OR_RETURN(const bool at_least_one, FlagOf(format, "at_least_one", place));
    const Structure all = once ? one : Structure::Sequence({one, more});
    return at_least_one ? all : Structure::Optional(all);
  }

  const Tokenizer& tokenizer_;
};

}  // namespace

StatusOr<Structure> ReadStructuralTag(std::string_view json, const Tokenizer& tokenizer) {
  const auto whole = ParseJson(json, {});
  if (!whole.ok()) return InvalidArgument("is no JSON: ", Message(whole.status()));
  return TagReader(tokenizer).ReadWhole(*whole);
}

StatusOr<std::shared_ptr<const constraint::Constraint>> CompileStructuralTag(
    const Model& model, std::string_view json, std::string_view tenant) {
  const auto make = [&](std::shared_ptr<const constraint::TokenTable> table)
      -> constraint::ConstraintCache::Made {
    WEFT_ASSIGN_OR_RETURN(const Structure structure, ReadStructuralTag(json, *model.tokenizer()));
    return constraint::Constraint::Structured(structure, {}, std::move(table));
  };
  return model.constraints().Get(tenant, StrCat("structural tag ", json), make);
}

}  // namespace weft
