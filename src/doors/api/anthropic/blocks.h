// The content blocks of Anthropic's API that are text for the model: text, documents, search
// results, and the content of tool results.
//
// Used while one request is read; one thread.
#ifndef WEFT_DOORS_API_ANTHROPIC_BLOCKS_H_
#define WEFT_DOORS_API_ANTHROPIC_BLOCKS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "doors/api/fields/pictures.h"
#include "doors/api/fields/support.h"
#include "doors/api/tool_catalog.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

class BlockReader {
 public:
  // References in the content offer tools of `tools`. Both must outlive it.
  // `pictures`: null if none can be taken.
  BlockReader(ToolCatalog* tools, LeftOut* left_out, PictureReader* pictures = nullptr)
      : tools_(*tools), left_out_(*left_out), pictures_(pictures) {}

  // A string, or an array of text blocks.
  StatusOr<std::vector<std::string>> Texts(const nlohmann::ordered_json& content,
                                           std::string_view place) const;
  // A document or a search result, with its title and where it is from. An error names what of it
  // is not text.
  StatusOr<std::string> SourceText(const nlohmann::ordered_json& block, std::string_view place);
  // The text that stands for an image.
  StatusOr<std::string> Picture(const nlohmann::ordered_json& block, std::string_view place);
  // What a tool returned. A sentence stands for a file, or for a picture that the model cannot
  // see, as clients send the same
  // result again with every later request, and for a tool that a search found.
  StatusOr<std::string> ToolResultText(const nlohmann::ordered_json& content,
                                       std::string_view place);
  // Offers what a search on Anthropic's servers found.
  Status ReadFoundTools(const nlohmann::ordered_json& block, std::string_view place);

  void Warn(std::vector<std::string>* warnings) const;

 private:
  StatusOr<std::string> ToolResultBlock(const nlohmann::ordered_json& block,
                                        const std::string& place);
  StatusOr<std::string> Reference(const nlohmann::ordered_json& block, std::string_view place);
  void NoteCitations(const nlohmann::ordered_json& block);

  ToolCatalog& tools_;
  LeftOut& left_out_;
  PictureReader* const pictures_;
  bool wants_citations_ = false;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_ANTHROPIC_BLOCKS_H_
