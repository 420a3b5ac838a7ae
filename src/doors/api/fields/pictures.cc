#include "doors/api/fields/pictures.h"

#include <optional>
#include <utility>

#include "answer/asked_picture.h"
#include "answer/error_details.h"
#include "answer/row_file.h"
#include "base/strings.h"
#include "doors/api/fields/content_parts.h"
#include "doors/api/fields/picture_addresses.h"
#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr char kSeesNone[] =
    "this model sees no pictures here: start the server with --mmproj FILE, the projector that was "
    "published with the model (mmproj-*.gguf)";

Status TooMany(std::string_view place) {
  return Misshapen(place, StrCat("a request may have at most ", kMaxPictures, " pictures"));
}

// A message's content with texts in place of pictures, joined with the texts next to them.
StatusOr<ordered_json> TakeFrom(PictureReader& reader, const ordered_json& content,
                                const std::string& place) {
  ordered_json parts = ordered_json::array();
  bool is_open = false;  // the last part ends with a picture
  for (size_t i = 0; i < content.size(); ++i) {
    const ordered_json& part = content[i];
    const bool is_picture = IsPicture(part);
    const ordered_json& text = ValueIn(part, "text");
    const bool is_text = ValueIn(part, "type") == "text" && text.is_string();
    if (!is_picture && !(is_text && is_open)) {
      parts.push_back(part);
      continue;
    }
    std::string piece;
    if (is_picture) {
      WEFT_ASSIGN_OR_RETURN(piece, reader.TakePart(part, StrCat(place, "[", i, "]")));
    } else {
      piece = text.get<std::string>();
    }
    const bool may_join = !parts.empty() && ValueIn(parts.back(), "text").is_string();
    if (!may_join) parts.push_back({{"type", "text"}, {"text", ""}});
    parts.back()["text"].get_ref<std::string&>() += piece;
    is_open = is_picture;
  }
  return parts;
}

}  // namespace

PictureReader::PictureReader(Host& host, const HttpRequest& request, Ask* ask)
    : defaults_(host.defaults()),
      fetched_(request.pictures.get()),
      sees_(host.answerer().pictures() != nullptr),
      ask_(*ask) {}

PictureReader::~PictureReader() {
  if (fetched_ != nullptr) fetched_->files.clear();
}

StatusOr<std::string> PictureReader::Keep(std::string_view base64, std::string_view place) {
  std::optional<std::string> bytes = DecodeBase64(base64);
  if (!bytes || bytes->empty()) return Misshapen(place, "must be a picture's file in base64");
  return AddPicture(*std::move(bytes), std::string(place), &ask_.pictures);
}

StatusOr<std::string> PictureReader::Fetch(std::string_view url, std::string_view place) {
  if (!defaults_.server.fetches_pictures) {
    return Misshapen(place,
                     "this server fetches nothing from addresses (--image-urls allows it): send "
                     "the picture itself, as \"data:image/png;base64,...\"");
  }
  if (ask_.pictures.size() == kMaxPictures) return TooMany(place);
  const FetchedPictures none;
  const auto& files = (fetched_ != nullptr ? *fetched_ : none).files;
  const auto found = files.find(url);
  if (found == files.end()) return Misshapen(place, "is no place for an address: send the picture");
  const auto& file = found->second;
  if (file.status().code() == StatusCode::kInvalidArgument) {
    return Misshapen(place, Message(file.status()));
  }
  if (!file.ok()) return WithParam(Annotate(file.status(), place, ": "), place);
  return AddPicture(*file, std::string(place), &ask_.pictures);
}

StatusOr<std::string> PictureReader::Take(const ordered_json& source, std::string_view place) {
  if (!sees_) return Misshapen(place, kSeesNone);
  if (!source.is_string()) return Misshapen(place, "must be a data: URL, or a file in base64");
  const std::string_view text = source.get_ref<const std::string&>();
  if (IsPictureAddress(text)) return Fetch(text, place);
  if (text.starts_with("file:")) {
    return Misshapen(place,
                     "files of the server's machine are not read: send the picture itself, as "
                     "\"data:image/png;base64,...\"");
  }
  if (!text.starts_with("data:")) return Keep(text, place);
  const size_t comma = text.find(',');
  if (comma == text.npos || !text.substr(0, comma).ends_with(";base64")) {
    return Misshapen(place, "must have its bytes in base64: \"data:image/png;base64,...\"");
  }
  return Keep(text.substr(comma + 1), place);
}

StatusOr<std::string> PictureReader::TakeSource(const ordered_json& source,
                                                std::string_view place) {
  const std::string type = StringOr(source, "type");
  if (type == "base64") return Take(ValueIn(source, "data"), place);
  if (type == "url") return Take(ValueIn(source, "url"), place);
  if (!sees_) return Misshapen(place, kSeesNone);
  return Misshapen(place, "needs a source of the type \"base64\", with its data");
}

StatusOr<std::string> PictureReader::TakePart(const ordered_json& part, std::string_view place) {
  const ordered_json& source = ValueIn(part, "image_url");
  return Take(source.is_object() ? ValueIn(source, "url") : source, place);
}

bool IsPicture(const ordered_json& part) {
  const std::string type = StringOr(part, "type");
  return type == "image_url" || type == "input_image";
}

bool HavePictures(const ordered_json& messages) { return HaveParts(messages, IsPicture); }

StatusOr<ordered_json> TakePictures(PictureReader& reader, const ordered_json& messages) {
  return RewriteContents(messages, IsPicture,
                         [&](const ordered_json& content, const std::string& place) {
                           return TakeFrom(reader, content, place);
                         });
}

StatusOr<std::string> TakeImages(PictureReader& reader, const ordered_json& images,
                                 std::string_view place) {
  std::string marks;
  if (images.is_null()) return marks;
  if (!images.is_array()) return Misshapen(place, "must be an array of files in base64");
  for (size_t i = 0; i < images.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const std::string mark,
                          reader.Take(images[i], StrCat(place, "[", i, "]")));
    marks += mark;
  }
  return marks;
}

}  // namespace weft::serve
