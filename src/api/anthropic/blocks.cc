#include "api/anthropic/blocks.h"

#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

}  // namespace

StatusOr<std::vector<std::string>> BlockReader::Texts(const ordered_json& content,
                                                      std::string_view place) const {
  std::vector<std::string> texts;
  if (content.is_null()) return texts;
  if (content.is_string()) return std::vector{content.get<std::string>()};
  if (!content.is_array()) return Misshapen(place, "must be a string or an array of blocks");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string here = StrCat(place, "[", i, "]");
    const std::string type = StringOr(content[i], "type");
    if (type != "text") {
      return Misshapen(here, StrCat("only text is accepted here, not a block of type \"",
                                    Printable(type), "\""));
    }
    WEFT_ASSIGN_OR_RETURN(std::string text, NeedString(content[i], "text", here));
    texts.push_back(std::move(text));
  }
  return texts;
}

StatusOr<std::string> BlockReader::Reference(const ordered_json& block, std::string_view place) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, NeedString(block, "tool_name", place));
  const bool is_offered = tools_.OfferNamed(name);
  return FoundToolText(name, is_offered);
}

StatusOr<std::string> BlockReader::ToolResultBlock(const ordered_json& block,
                                                   const std::string& place) {
  const std::string type = StringOr(block, "type");
  if (type == "tool_reference") return Reference(block, place);
  if (type == "image" || type == "document") {
    left_out_.Add(StrCat(type, " in tool_result"));
    return std::string(kPictureLeftOut);
  }
  if (type != "text") {
    return Misshapen(place, StrCat("a block of type \"", Printable(type),
                                   "\" is not accepted in a tool_result"));
  }
  return NeedString(block, "text", place);
}

StatusOr<std::string> BlockReader::ToolResultText(const ordered_json& content,
                                                  std::string_view place) {
  if (!content.is_array()) {
    WEFT_ASSIGN_OR_RETURN(const auto texts, Texts(content, place));
    return StrJoin(texts, "\n");
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < content.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(std::string text,
                          ToolResultBlock(content[i], StrCat(place, "[", i, "]")));
    texts.push_back(std::move(text));
  }
  return StrJoin(texts, "\n");
}

Status BlockReader::ReadFoundTools(const ordered_json& block, std::string_view place) {
  const ordered_json& found = ValueIn(ValueIn(block, "content"), "tool_references");
  if (!found.is_array()) return OkStatus();  // an error of the search
  for (size_t i = 0; i < found.size(); ++i) {
    WEFT_RETURN_IF_ERROR(
        Reference(found[i], StrCat(place, ".content.tool_references[", i, "]")).status());
  }
  return OkStatus();
}

}  // namespace weft::serve
