#include "answer/asked_picture.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>

#include "answer/error_details.h"
#include "base/strings.h"
#include "engine/vision/picture_cache.h"

namespace weft::serve {

PictureFile::PictureFile(std::string its_bytes) : bytes(std::move(its_bytes)) {
  const vision::PictureKey key = vision::KeyOf(std::as_bytes(std::span(bytes)));
  hash_high = key.high, hash_low = key.low;
}

std::string MarkOf(const PictureFile& file, size_t n) {
  char text[64];
  std::snprintf(text, sizeof(text), "<picture-%016llx%016llx-%zu>",
                static_cast<unsigned long long>(file.hash_high),
                static_cast<unsigned long long>(file.hash_low), n);
  return text;
}

StatusOr<std::string> AddPicture(std::string bytes, std::string place,
                                 std::vector<AskedPicture>* pictures) {
  return AddPicture(std::make_shared<const PictureFile>(std::move(bytes)), std::move(place),
                    pictures);
}

StatusOr<std::string> AddPicture(std::shared_ptr<const PictureFile> file, std::string place,
                                 std::vector<AskedPicture>* pictures) {
  if (pictures->size() == kMaxPictures) {
    return AtPlace(
        InvalidArgument(place, ": a request may have at most ", kMaxPictures, " pictures"));
  }
  const auto is_same = [&](const AskedPicture& other) {
    return other.file->hash_high == file->hash_high && other.file->hash_low == file->hash_low;
  };
  const auto n = static_cast<size_t>(std::ranges::count_if(*pictures, is_same));
  std::string mark = MarkOf(*file, n);
  pictures->push_back({mark, std::move(place), std::move(file)});
  return mark;
}

}  // namespace weft::serve
