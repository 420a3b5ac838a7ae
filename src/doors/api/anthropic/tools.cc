#include "doors/api/anthropic/tools.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

// Requests do not contain the schemas of the tools that Anthropic defines, because its models know
// them; the models here need them.

using Json = nlohmann::ordered_json;

// Before this version, inserted text had the same name as replacement text.
constexpr std::string_view kInsertTextSince = "20250429";
constexpr std::string_view kUndoUntil = "20250124";

Json Text(std::string_view description) {
  return {{"type", "string"}, {"description", description}};
}

Json Whole(std::string_view description) {
  return {{"type", "integer"}, {"description", description}};
}

Json Choice(std::string_view description, Json values) {
  return {{"type", "string"}, {"enum", std::move(values)}, {"description", description}};
}

Json ViewRange() {
  return {
      {"type", "array"},
      {"items", {{"type", "integer"}}},
      {"minItems", 2},
      {"maxItems", 2},
      {"description", "view: the first and the last line to show, counted from 1; -1 is the end"}};
}

Json Function(std::string_view description, Json properties, Json required) {
  return {{"description", description},
          {"parameters",
           {{"type", "object"},
            {"properties", std::move(properties)},
            {"required", std::move(required)}}}};
}

Json Bash() {
  return Function("Runs commands in a bash shell that keeps its state from call to call.",
                  {{"command", Text("The command to run. Not needed to restart.")},
                   {"restart", {{"type", "boolean"}, {"description", "True starts a new shell."}}}},
                  Json::array());
}

Json TextEditor(std::string_view date) {
  Json commands = Json::array({"view", "create", "str_replace", "insert"});
  if (date <= kUndoUntil) commands.push_back("undo_edit");
  const bool has_insert_text = date >= kInsertTextSince;
  Json properties = {
      {"command", Choice("What to do.", std::move(commands))},
      {"path", Text("The file, or for view a folder too.")},
      {"view_range", ViewRange()},
      {"file_text", Text("create: the content of the new file")},
      {"old_str", Text("str_replace: the text to replace; it must occur exactly once")},
      {"new_str", Text(has_insert_text ? "str_replace: the text in its place"
                                       : "str_replace: the text in its place; insert: the text "
                                         "to insert")},
      {"insert_line", Whole("insert: the line after which to insert; 0 is the beginning")}};
  if (has_insert_text) properties["insert_text"] = Text("insert: the text to insert");
  return Function("Shows, creates and edits text files.", std::move(properties),
                  Json::array({"command", "path"}));
}

Json Memory() {
  return Function(
      "Keeps notes in files below /memories that outlast the conversation. View /memories first.",
      {{"command", Choice("What to do.", Json::array({"view", "create", "str_replace", "insert",
                                                      "delete", "rename"}))},
       {"path", Text("The file or folder, for all commands but rename")},
       {"view_range", ViewRange()},
       {"file_text", Text("create: the content of the file")},
       {"old_str", Text("str_replace: the text to replace; it must occur exactly once")},
       {"new_str", Text("str_replace: the text in its place")},
       {"insert_line", Whole("insert: the line after which to insert; 0 is the beginning")},
       {"insert_text", Text("insert: the text to insert")},
       {"old_path", Text("rename: the present path")},
       {"new_path", Text("rename: the new path")}},
      Json::array({"command"}));
}

// "bash_20250124" is "bash_" and a date.
bool HasDate(std::string_view type, std::string_view prefix, std::string_view* date) {
  if (!type.starts_with(prefix)) return false;
  *date = type.substr(prefix.size());
  return date->size() == 8 && date->find_first_not_of("0123456789") == date->npos;
}

// Null for any other type. The computer tool is excluded: it returns images.
Json DefinedByAnthropic(std::string_view type) {
  std::string_view date;
  if (HasDate(type, "bash_", &date)) return Bash();
  if (HasDate(type, "text_editor_", &date)) return TextEditor(date);
  if (HasDate(type, "memory_", &date)) return Memory();
  return nullptr;
}

}  // namespace

StatusOr<ToolCatalog> ReadAnthropicTools(const Json& tools) {
  if (!tools.is_array()) return Misshapen("tools", "must be an array");
  ToolCatalog catalog;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string place = StrCat("tools[", i, "]");
    if (!tool.is_object()) return Misshapen(place, "must be an object");
    const std::string kind = StringOr(tool, "type", "custom");
    Json function = DefinedByAnthropic(kind);
    if (function.is_null() && kind != "custom") {
      catalog.LeaveOut(StringOr(tool, "name"), kind);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(std::string name, NeedString(tool, "name", place));
    if (function.is_null()) {
      if (tool.contains("description")) function["description"] = tool["description"];
      function["parameters"] =
          tool.value("input_schema", Json{{"type", "object"}, {"properties", Json::object()}});
    }
    WEFT_RETURN_IF_ERROR(catalog.ReadStrict(tool, place));
    WEFT_ASSIGN_OR_RETURN(const bool deferred, ReadDeferral(tool, place));
    WEFT_RETURN_IF_ERROR(
        catalog.Offer({.name = std::move(name), .is_deferred = deferred}, place, function));
  }
  return catalog;
}

}  // namespace weft::serve
