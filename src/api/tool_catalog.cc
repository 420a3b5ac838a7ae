#include "api/tool_catalog.h"

#include <algorithm>
#include <utility>

#include "api/chat_turn.h"
#include "base/strings.h"
#include "chat/openai_form.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// Limit for the list of left-out tools: headers should stay short.
constexpr size_t kMaxShownNames = 16;

// Safe for a header.
std::string HeaderText(std::string_view text) {
  std::string shown = Printable(text, 64);
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return shown;
}

// {"description", "parameters"}, the latter under the API's name for it.
Json FunctionOf(const Json& tool, const char* parameters) {
  Json function = Json::object();
  const Json& text = ValueIn(tool, "description");
  const Json& schema = ValueIn(tool, parameters);
  if (!text.is_null()) function["description"] = text;
  if (!schema.is_null()) function["parameters"] = schema;
  return function;
}

// --- the Responses API -----------------------------------------------------------------

// One tool, in a namespace or not.
Status ReadResponsesTool(const Json& tool, std::string_view name_space, const std::string& place,
                         ToolCatalog* catalog) {
  if (!tool.is_object()) return Misshapen(place, "must be an object");
  const std::string type = StringOr(tool, "type");
  if (type == "custom") {
    return catalog->OfferCustom(tool, name_space, place, ValueIn(tool, "format"));
  }
  if (type != "function") {
    if (type.empty()) return Misshapen(place, "needs the string \"type\"");
    const std::string name = StringOr(tool, "name");
    catalog->LeaveOut(name_space.empty() ? name : StrCat(name_space, ".", name), type);
    return OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(std::string name, NeedString(tool, "name", place));
  WEFT_RETURN_IF_ERROR(catalog->ReadStrict(tool, place));
  return catalog->Offer({.name = std::move(name), .name_space = std::string(name_space)}, place,
                        FunctionOf(tool, "parameters"));
}

Status ReadNamespace(const Json& space, const std::string& place, ToolCatalog* catalog) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, NeedString(space, "name", place));
  const Json& tools = ValueIn(space, "tools");
  if (!tools.is_array()) return Misshapen(place, "needs the array \"tools\"");
  for (size_t i = 0; i < tools.size(); ++i) {
    WEFT_RETURN_IF_ERROR(
        ReadResponsesTool(tools[i], name, StrCat(place, ".tools[", i, "]"), catalog));
  }
  return OkStatus();
}

}  // namespace

std::string FunctionName(std::string_view name_space, std::string_view name) {
  if (name_space.empty()) return std::string(name);
  return StrCat(name_space, name_space.ends_with("__") ? "" : "__", name);
}

Json CustomArguments(std::string_view input) { return {{"input", input}}; }

std::string CustomInput(std::string_view arguments) {
  const Json value = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  const Json& input = ValueIn(value, "input");
  if (input.is_string()) return input.get<std::string>();
  // A single text under another name can only be this one.
  if (value.is_object() && value.size() == 1 && value.begin()->is_string()) {
    return value.begin()->get<std::string>();
  }
  return std::string(arguments);
}

Status ToolCatalog::Offer(ClientTool tool, std::string_view place, const Json& function) {
  if (functions_.size() >= kMaxTools) {
    return Misshapen("tools", StrCat("has more than ", kMaxTools, " entries"));
  }
  std::string name = FunctionName(tool.name_space, tool.name);
  Entry entry{.function = std::move(name), .tool = std::move(tool)};
  for (const Entry& other : entries_) {
    if (other.function != entry.function) continue;
    const bool is_same =
        other.tool.name_space == entry.tool.name_space && other.tool.kind == entry.tool.kind;
    if (is_same) continue;
    return Misshapen(place, StrCat("has the same name as another tool, ", Printable(entry.function),
                                   "; rename one of them"));
  }
  Json named = {{"name", entry.function}};
  named.update(function);
  WEFT_RETURN_IF_ERROR(OfferAsIs({{"type", "function"}, {"function", std::move(named)}}, place));
  entries_.push_back(std::move(entry));
  return OkStatus();
}

Status ToolCatalog::OfferCustom(const Json& custom, std::string_view name_space,
                                std::string_view place, const Json& grammar) {
  WEFT_ASSIGN_OR_RETURN(std::string name, NeedString(custom, "name", place));
  std::string what = "The whole input of the tool, as plain text.";
  const std::string syntax = StringOr(grammar, "syntax");
  const std::string definition = StringOr(grammar, "definition");
  if (!definition.empty()) {
    if (syntax != "lark" && syntax != "regex") {
      return Misshapen(StrCat(place, ".format"), "needs the syntax \"lark\" or \"regex\"");
    }
    StrAppend(&what, " It must follow this ", syntax, " grammar:\n", definition);
    has_strict_ = true;
  }
  Json input = {{"type", "string"}, {"description", std::move(what)}};
  if (syntax == "regex") {
    input["pattern"] = StrCat("^(?:", definition, ")$");
  } else if (!definition.empty()) {
    grammars_[FunctionName(name_space, name)] = definition;
  }
  Json function = FunctionOf(custom, "");
  function["parameters"] = {{"type", "object"},
                            {"properties", {{"input", std::move(input)}}},
                            {"required", Json::array({"input"})}};
  return Offer({.kind = ClientTool::Kind::kCustom,
                .name = std::move(name),
                .name_space = std::string(name_space)},
               place, function);
}

Status ToolCatalog::OfferAsIs(Json entry, std::string_view place) {
  auto tool = ReadOpenAiTool(std::move(entry), std::string(place));
  if (!tool.ok()) return AtPlace(tool.status());
  functions_.push_back(*std::move(tool));
  return OkStatus();
}

bool ToolCatalog::Offers(std::string_view function) const {
  return std::ranges::any_of(functions_, [&](const auto& tool) { return tool->name == function; });
}

Status ToolCatalog::ReadStrict(const Json& tool, std::string_view place) {
  const Json& strict = ValueIn(tool, "strict");
  if (!strict.is_null() && !strict.is_boolean()) {
    return Misshapen(StrCat(place, ".strict"), "must be true or false");
  }
  has_strict_ |= strict == true;
  return OkStatus();
}

void ToolCatalog::LeaveOut(std::string_view name, std::string_view type) {
  LeftOut tool{.name = HeaderText(name), .type = HeaderText(type)};
  for (const LeftOut& other : left_out_) {
    if (other.name == tool.name && other.type == tool.type) return;
  }
  ++n_left_out_;
  if (left_out_.size() < kMaxShownNames) left_out_.push_back(std::move(tool));
}

bool ToolCatalog::WasLeftOut(std::string_view name_or_type) const {
  return std::any_of(left_out_.begin(), left_out_.end(), [&](const LeftOut& tool) {
    return tool.name == name_or_type || tool.type == name_or_type;
  });
}

std::string ToolCatalog::ShownLeftOut() const {
  std::vector<std::string> shown;
  for (const LeftOut& tool : left_out_) {
    const bool has_name = !tool.name.empty() && tool.name != tool.type;
    shown.push_back(has_name ? StrCat(tool.name, " (", tool.type, ")") : tool.type);
  }
  const size_t n_hidden = n_left_out_ - left_out_.size();
  return StrCat(StrJoin(shown, ", "), n_hidden == 0 ? "" : StrCat(" and ", n_hidden, " more"));
}

ClientTool ToolCatalog::Find(std::string_view function) const {
  // Models forget the namespace when the name alone is unambiguous.
  const ClientTool* by_name = nullptr;
  int n_by_name = 0;
  for (const Entry& entry : entries_) {
    if (entry.function == function) return entry.tool;
    if (entry.tool.name != function) continue;
    by_name = &entry.tool;
    ++n_by_name;
  }
  return n_by_name == 1 ? *by_name : ClientTool{.name = std::string(function)};
}

void ToolCatalog::CheckUsable(bool calls_allowed, ApiFields* fields) const {
  if (!calls_allowed || left_out_.empty() || !functions_.empty()) return;
  fields->Unsupported("tools", StrCat("contains nothing that can be called: ", ShownLeftOut(),
                                      " cannot be run by this server; omit tools, or set "
                                      "tool_choice to none, to get an answer without them"));
}

void ToolCatalog::Warn(std::vector<std::string>* warnings) const {
  if (left_out_.empty()) return;
  warnings->push_back(StrCat("tools that this server cannot run were left out: ", ShownLeftOut()));
}

void RefuseLeftOut(const ToolCatalog& catalog, const Json& choice, ApiFields* fields) {
  const std::string type = StringOr(choice, "type");
  for (const std::string& name :
       {StringOr(choice, "name"), StringOr(ValueIn(choice, "function"), "name"), type}) {
    if (name.empty() || !catalog.WasLeftOut(name)) continue;
    return fields->Unsupported("tool_choice",
                               StrCat("names ", name, ", a tool that this server cannot run"));
  }
}

StatusOr<ToolCatalog> ReadChatTools(const Json& tools) {
  if (!tools.is_array()) return Misshapen("tools", "must be an array");
  ToolCatalog catalog;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string type = StringOr(tools[i], "type");
    if (type.empty() || type == "function") {
      const Json& function = ValueIn(tools[i], "function");
      WEFT_RETURN_IF_ERROR(catalog.ReadStrict(function, StrCat("tools[", i, "].function")));
      WEFT_RETURN_IF_ERROR(catalog.OfferAsIs(tools[i], StrCat("tools[", i, "]")));
    } else if (type == "custom") {
      const Json& custom = ValueIn(tools[i], "custom");
      // Its grammar is nested one level deeper than in the Responses API.
      WEFT_RETURN_IF_ERROR(catalog.OfferCustom(custom, "", StrCat("tools[", i, "].custom"),
                                               ValueIn(ValueIn(custom, "format"), "grammar")));
    } else {
      catalog.LeaveOut(StringOr(tools[i], "name"), type);
    }
  }
  return catalog;
}

StatusOr<ToolCatalog> ReadResponsesTools(const Json& tools) {
  if (!tools.is_array()) return Misshapen("tools", "must be an array");
  ToolCatalog catalog;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = StrCat("tools[", i, "]");
    if (StringOr(tools[i], "type") == "namespace") {
      WEFT_RETURN_IF_ERROR(ReadNamespace(tools[i], place, &catalog));
    } else {
      WEFT_RETURN_IF_ERROR(ReadResponsesTool(tools[i], "", place, &catalog));
    }
  }
  return catalog;
}

}  // namespace weft::serve
