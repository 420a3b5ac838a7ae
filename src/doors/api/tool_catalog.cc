#include "doors/api/tool_catalog.h"

#include <algorithm>
#include <utility>

#include "answer/ask.h"
#include "answer/chat/openai_form.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// Limit for the list of left-out tools: headers should stay short.
constexpr size_t kMaxShownNames = 16;

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

// Offers a list of tools.
class ResponsesTools {
 public:
  // With `found`, which receives their names, the conversation names them all.
  ResponsesTools(ToolCatalog* catalog, std::vector<std::string>* found)
      : catalog_(*catalog), found_(found) {}

  Status Add(const Json& tools, const std::string& place) {
    if (!tools.is_array()) return Misshapen(place, "must be an array");
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string here = StrCat(place, "[", i, "]");
      if (StringOr(tools[i], "type") == "namespace") {
        WEFT_RETURN_IF_ERROR(AddNamespace(tools[i], here));
      } else {
        WEFT_RETURN_IF_ERROR(AddTool(tools[i], "", here));
      }
    }
    return OkStatus();
  }

 private:
  Status AddNamespace(const Json& space, const std::string& place) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, NeedString(space, "name", place));
    const Json& tools = ValueIn(space, "tools");
    if (!tools.is_array()) return Misshapen(place, "needs the array \"tools\"");
    for (size_t i = 0; i < tools.size(); ++i) {
      WEFT_RETURN_IF_ERROR(AddTool(tools[i], name, StrCat(place, ".tools[", i, "]")));
    }
    return OkStatus();
  }

  // In a namespace or not.
  Status AddTool(const Json& tool, const std::string& name_space, const std::string& place) {
    if (!tool.is_object()) return Misshapen(place, "must be an object");
    const std::string type = StringOr(tool, "type");
    if (type.empty()) return Misshapen(place, "needs the string \"type\"");
    const bool is_search = type == "tool_search" && StringOr(tool, "execution") == "client";
    if (type != "function" && type != "custom" && !is_search) {
      const std::string name = StringOr(tool, "name");
      catalog_.LeaveOut(name_space.empty() ? name : StrCat(name_space, ".", name), type);
      return OkStatus();
    }
    ClientTool client{.name = kToolSearch, .name_space = name_space};
    if (is_search) {
      client.kind = ClientTool::Kind::kSearch;
    } else {
      WEFT_ASSIGN_OR_RETURN(client.name, NeedString(tool, "name", place));
    }
    if (found_ != nullptr) {
      found_->push_back(FunctionName(name_space, client.name));
      if (catalog_.OfferNamed(found_->back())) return OkStatus();
    } else {
      WEFT_ASSIGN_OR_RETURN(client.is_deferred, ReadDeferral(tool, place));
    }
    if (type == "custom") {
      client.kind = ClientTool::Kind::kCustom;
      return catalog_.OfferCustom(std::move(client), tool, place, ValueIn(tool, "format"));
    }
    WEFT_RETURN_IF_ERROR(catalog_.ReadStrict(tool, place));
    return catalog_.Offer(std::move(client), place, FunctionOf(tool, "parameters"));
  }

  ToolCatalog& catalog_;
  std::vector<std::string>* const found_;
};

}  // namespace

std::string FunctionName(std::string_view name_space, std::string_view name) {
  if (name_space.empty()) return std::string(name);
  return StrCat(name_space, name_space.ends_with("__") ? "" : "__", name);
}

StatusOr<bool> ReadDeferral(const Json& tool, std::string_view place) {
  const Json& deferred = ValueIn(tool, "defer_loading");
  if (!deferred.is_null() && !deferred.is_boolean()) {
    return Misshapen(StrCat(place, ".defer_loading"), "must be true or false");
  }
  return deferred == true;
}

std::string FoundToolText(std::string_view function, bool is_offered) {
  return StrCat("The tool ", function, is_offered ? " can be called now." : " is not available.");
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
  if (entries_.size() >= kMaxTools) {
    return Misshapen("tools", StrCat("has more than ", kMaxTools, " entries"));
  }
  std::string name = FunctionName(tool.name_space, tool.name);
  Entry entry{.function = std::move(name), .tool = std::move(tool), .deferred = nullptr};
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
  if (entry.tool.is_deferred) {
    entry.deferred = std::move(functions_.back());
    functions_.pop_back();
  }
  entries_.push_back(std::move(entry));
  return OkStatus();
}

Status ToolCatalog::OfferCustom(ClientTool tool, const Json& custom, std::string_view place,
                                const Json& grammar) {
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
    grammars_[FunctionName(tool.name_space, tool.name)] = definition;
  }
  Json function = FunctionOf(custom, "");
  function["parameters"] = {{"type", "object"},
                            {"properties", {{"input", std::move(input)}}},
                            {"required", Json::array({"input"})}};
  return Offer(std::move(tool), place, function);
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

bool ToolCatalog::OfferNamed(std::string_view function) {
  if (Offers(function)) return true;
  const auto named = std::ranges::find(entries_, function, &Entry::function);
  if (named == entries_.end() || named->deferred == nullptr) return false;
  functions_.push_back(std::move(named->deferred));
  return true;
}

bool ToolCatalog::IsDeferred(std::string_view function) const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    return entry.function == function && entry.deferred != nullptr;
  });
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
  const bool hides =
      std::ranges::any_of(entries_, [](const Entry& entry) { return entry.deferred != nullptr; });
  const bool cannot_search = std::ranges::any_of(
      left_out_, [](const LeftOut& tool) { return tool.type.starts_with("tool_search"); });
  if (hides && cannot_search) {
    warnings->push_back(
        "deferred tools stay hidden, because this server cannot search them: send them without "
        "defer_loading");
  }
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
      const std::string place = StrCat("tools[", i, "].custom");
      ClientTool tool{.kind = ClientTool::Kind::kCustom};
      WEFT_ASSIGN_OR_RETURN(tool.name, NeedString(custom, "name", place));
      WEFT_RETURN_IF_ERROR(catalog.OfferCustom(std::move(tool), custom, place,
                                               ValueIn(ValueIn(custom, "format"), "grammar")));
    } else {
      catalog.LeaveOut(StringOr(tools[i], "name"), type);
    }
  }
  return catalog;
}

StatusOr<ToolCatalog> ReadResponsesTools(const Json& tools) {
  ToolCatalog catalog;
  WEFT_RETURN_IF_ERROR(ResponsesTools(&catalog, nullptr).Add(tools, "tools"));
  return catalog;
}

StatusOr<std::vector<std::string>> OfferFoundTools(const Json& tools, const std::string& place,
                                                   ToolCatalog* catalog) {
  std::vector<std::string> found;
  WEFT_RETURN_IF_ERROR(ResponsesTools(catalog, &found).Add(tools, place));
  return found;
}

}  // namespace weft::serve
