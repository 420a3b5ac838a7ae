#include "doors/api/fields/prompt_embeds.h"

#include <optional>
#include <utility>

#include "answer/row_file.h"
#include "base/strings.h"
#include "doors/api/fields/content_parts.h"
#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr char kType[] = "prompt_embeds";

bool IsEmbeds(const ordered_json& part) { return ValueIn(part, "type") == kType; }

// A content's parts with marks for vectors, which go to `read` and are nowhere copied: they are
// most of a request.
StatusOr<ordered_json> TakeFrom(Host& host, const ordered_json& content, std::string_view place,
                                MessagesWithRows* read) {
  ordered_json parts = ordered_json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    if (!IsEmbeds(content[i])) {
      parts.push_back(content[i]);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(
        auto rows, ReadPromptEmbeds(host, ValueIn(content[i], "data"), StrCat(place, "[", i, "]")));
    read->rows.push_back(MarkRows(std::move(rows)));
    parts.push_back({{"type", "text"}, {"text", read->rows.back().mark}});
  }
  return parts;
}

}  // namespace

StatusOr<std::vector<float>> ReadPromptEmbeds(Host& host, const ordered_json& value,
                                              std::string_view place) {
  if (!host.defaults().server.takes_prompt_embeds) {
    return WithCode(WithParam(InvalidArgument(place,
                                              ": this server takes no input embeddings; "
                                              "--enable-prompt-embeds allows them"),
                              place),
                    "unsupported_parameter");
  }
  if (const Status takes = host.model().CheckTakesRows(); !takes.ok()) {
    return Misshapen(place, Message(takes));
  }
  const auto bytes = value.is_string() ? DecodeBase64(value.get_ref<const std::string&>())
                                       : std::optional<std::string>();
  if (!bytes) return Misshapen(place, "must be a matrix in base64");
  auto embeddings = ReadRowFile(*bytes, host.model().embedding_width());
  if (!embeddings.ok()) return Misshapen(place, Message(embeddings.status()));
  return host.model().RowsOfEmbeddings(*std::move(embeddings));
}

bool HavePromptEmbeds(const ordered_json& messages) { return HaveParts(messages, IsEmbeds); }

StatusOr<MessagesWithRows> TakePromptEmbeds(Host& host, const ordered_json& messages) {
  MessagesWithRows read;
  WEFT_ASSIGN_OR_RETURN(read.messages,
                        RewriteContents(messages, IsEmbeds,
                                        [&](const ordered_json& content, const std::string& place) {
                                          return TakeFrom(host, content, place, &read);
                                        }));
  return read;
}

}  // namespace weft::serve
