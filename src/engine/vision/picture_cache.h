// Keeps encoded pictures by tenant, pixels and preparation, so that each is encoded once for all
// turns and conversations of a tenant.
//
// Bounded in bytes: the least recently used leaves first. Not thread-safe.
#ifndef WEFT_ENGINE_VISION_PICTURE_CACHE_H_
#define WEFT_ENGINE_VISION_PICTURE_CACHE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "engine/vision/span.h"
#include "model/pictures/picture_spec.h"
#include "picture/picture.h"

namespace weft::vision {

// A hash, another one in every process, of the pixels, of all numbers of the preparation, and of
// the tenant: none can find another's pictures. Not of the encoder: each has a cache of its own.
struct PictureKey {
  uint64_t high = 0, low = 0;
  auto operator<=>(const PictureKey&) const = default;  // NOLINT(modernize-use-nullptr)
};
PictureKey KeyOf(const picture::Picture& picture, const PicturePreparation& preparation,
                 std::string_view tenant);
// Of a file's bytes.
PictureKey KeyOf(std::span<const std::byte> file);

class PictureCache {
 public:
  explicit PictureCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Null if it is not there.
  std::shared_ptr<const EncodedPicture> Find(const PictureKey& key);
  // Replaces what is there. A picture that is larger than the cache is returned and not kept.
  std::shared_ptr<const EncodedPicture> Put(const PictureKey& key, EncodedPicture picture);

  struct Stats {
    int64_t pictures = 0, bytes = 0;
    int64_t hits = 0, misses = 0, evictions = 0;
    bool operator==(const Stats&) const = default;
  };
  Stats stats() const;

 private:
  struct Entry {
    PictureKey key;
    std::shared_ptr<const EncodedPicture> picture;
  };
  using Entries = std::list<Entry>;
  void Drop(Entries::iterator entry);

  const int64_t max_bytes_;
  Entries entries_;  // the last one was used latest
  std::map<PictureKey, Entries::iterator> by_key_;
  Stats stats_;
};

}  // namespace weft::vision

#endif  // WEFT_ENGINE_VISION_PICTURE_CACHE_H_
