// Reads the pictures of a request, in the forms of OpenAI, Anthropic and Ollama. Each becomes a
// text that stands for it in the conversation, and a file in Ask::pictures.
//
// Used while one request is read; one thread.
#ifndef WEFT_DOORS_API_FIELDS_PICTURES_H_
#define WEFT_DOORS_API_FIELDS_PICTURES_H_

#include <string>
#include <string_view>

#include "answer/ask.h"
#include "base/status.h"
#include "doors/host/host.h"
#include "doors/host/picture_fetcher.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

class PictureReader {
 public:
  // All must outlive it.
  PictureReader(Host& host, const HttpRequest& request, Ask* ask);
  // Those of the request's fetched pictures that it took are the Ask's; the others are freed.
  ~PictureReader();
  PictureReader(const PictureReader&) = delete;
  PictureReader& operator=(const PictureReader&) = delete;

  bool sees() const { return sees_; }
  // The text that stands for the picture. `source` is a data URL, or base64. An error names
  // `place`: the model sees no pictures, or what is wrong with this one.
  StatusOr<std::string> Take(const nlohmann::ordered_json& source, std::string_view place);
  // Anthropic's {"type": "base64", "data": ...} or {"type": "url", "url": ...}.
  StatusOr<std::string> TakeSource(const nlohmann::ordered_json& source, std::string_view place);
  // A content part {"type": "image_url" or "input_image", "image_url": a URL or {"url": ...}}.
  StatusOr<std::string> TakePart(const nlohmann::ordered_json& part, std::string_view place);

 private:
  StatusOr<std::string> Keep(std::string_view base64, std::string_view place);
  StatusOr<std::string> Fetch(std::string_view url, std::string_view place);

  const RequestDefaults& defaults_;
  FetchedPictures* const fetched_;  // null: none were fetched
  const bool sees_;
  Ask& ask_;
};

// Whether a content part of OpenAI's is a picture.
bool IsPicture(const nlohmann::ordered_json& part);

// OpenAI's messages with texts in place of their pictures; whether there are any.
StatusOr<nlohmann::ordered_json> TakePictures(PictureReader& reader,
                                              const nlohmann::ordered_json& messages);
bool HavePictures(const nlohmann::ordered_json& messages);

// Ollama's list of base64 texts: the texts that stand for them, one after the other. Nothing may be
// in its place.
StatusOr<std::string> TakeImages(PictureReader& reader, const nlohmann::ordered_json& images,
                                 std::string_view place);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_PICTURES_H_
