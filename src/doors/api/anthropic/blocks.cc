#include "doors/api/anthropic/blocks.h"

#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

// "<name>text</name>" and a line break; nothing for an empty text.
std::string Tagged(std::string_view name, std::string_view text) {
  if (text.empty()) return "";
  return StrCat("<", name, ">", text, "</", name, ">\n");
}

// What a block is that is no text: "image", "document of type application/pdf".
std::string NonText(const ordered_json& block) {
  const std::string type = StringOr(block, "type");
  const ordered_json& source = ValueIn(block, "source");
  std::string kind = StringOr(source, "media_type");
  if (kind.empty()) kind = StringOr(source, "type");
  if (type != "document" || kind.empty()) return Printable(type);
  return StrCat("document of type ", Printable(kind));
}

bool IsTextDocument(const ordered_json& block) {
  const std::string source = StringOr(ValueIn(block, "source"), "type");
  return source == "text" || source == "content";
}

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

void BlockReader::NoteCitations(const ordered_json& block) {
  wants_citations_ |= ValueIn(ValueIn(block, "citations"), "enabled") == true;
}

StatusOr<std::string> BlockReader::SourceText(const ordered_json& block, std::string_view place) {
  const std::string type = StringOr(block, "type");
  std::string text = StrCat("<", type, ">\n");
  std::vector<std::string> contents;
  if (type == "search_result") {
    WEFT_ASSIGN_OR_RETURN(const std::string source, NeedString(block, "source", place));
    WEFT_ASSIGN_OR_RETURN(const std::string title, NeedString(block, "title", place));
    text += Tagged("source", source) + Tagged("title", title);
    WEFT_ASSIGN_OR_RETURN(contents, Texts(ValueIn(block, "content"), StrCat(place, ".content")));
  } else if (IsTextDocument(block)) {
    const ordered_json& source = ValueIn(block, "source");
    const std::string here = StrCat(place, ".source");
    text +=
        Tagged("title", StringOr(block, "title")) + Tagged("context", StringOr(block, "context"));
    if (source["type"] == "text") {
      WEFT_ASSIGN_OR_RETURN(contents.emplace_back(), NeedString(source, "data", here));
    } else {
      WEFT_ASSIGN_OR_RETURN(contents, Texts(ValueIn(source, "content"), StrCat(here, ".content")));
    }
  } else {
    return Misshapen(place, StrCat("a ", NonText(block),
                                   " is not supported: the model reads text only; send its text, "
                                   "as a document whose source has the type \"text\""));
  }
  NoteCitations(block);
  return StrCat(text, "<content>\n", StrJoin(contents, "\n"), "\n</content>\n</", type, ">");
}

StatusOr<std::string> BlockReader::Picture(const ordered_json& block, std::string_view place) {
  if (pictures_ == nullptr) return Misshapen(place, "pictures cannot be taken here");
  return pictures_->TakeSource(ValueIn(block, "source"), StrCat(place, ".source"));
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
  if (type == "search_result" || (type == "document" && IsTextDocument(block))) {
    return SourceText(block, place);
  }
  if (type == "image" && pictures_ != nullptr && pictures_->sees()) return Picture(block, place);
  if (type == "image" || type == "document") {
    left_out_.Add(StrCat(type, " in tool_result"));
    if (type == "image") return std::string(kPictureLeftOut);
    return StrCat("[a ", NonText(block), " was left out: this model reads text only]");
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

void BlockReader::Warn(std::vector<std::string>* warnings) const {
  if (wants_citations_)
    warnings->push_back("citations are not given, as the model cannot mark them");
}

}  // namespace weft::serve
