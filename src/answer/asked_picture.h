// The picture files of a request. Immutable once made.
#ifndef WEFT_ANSWER_ASKED_PICTURE_H_
#define WEFT_ANSWER_ASKED_PICTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace weft::serve {

// Per request. lib/picture limits the size of each.
inline constexpr size_t kMaxPictures = 100;

struct PictureFile {
  explicit PictureFile(std::string its_bytes);
  const std::string bytes;
  uint64_t hash_high = 0, hash_low = 0;  // of the bytes; differs between processes
};

// A picture of a conversation.
struct AskedPicture {
  std::string mark;   // stands for it in the conversation's texts
  std::string place;  // in the client's request, for errors
  std::shared_ptr<const PictureFile> file;
};

// The text that stands for the file's `n`-th occurrence in a conversation. It is always the same,
// and nobody outside this process can guess it.
std::string MarkOf(const PictureFile& file, size_t n);

// Adds a picture to those of a request, and returns its mark. `bytes`: its file's. `place`: see
// AskedPicture. INVALID_ARGUMENT if the request has kMaxPictures already.
StatusOr<std::string> AddPicture(std::string bytes, std::string place,
                                 std::vector<AskedPicture>* pictures);
StatusOr<std::string> AddPicture(std::shared_ptr<const PictureFile> file, std::string place,
                                 std::vector<AskedPicture>* pictures);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ASKED_PICTURE_H_
