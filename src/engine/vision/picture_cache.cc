#include "engine/vision/picture_cache.h"

#include <array>
#include <bit>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "xxhash.h"

namespace weft::vision {
namespace {

// Of this process: nobody can make two pictures with one key.
uint64_t Secret() {
  static const uint64_t secret = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) ^ device();
  }();
  return secret;
}

}  // namespace

PictureKey KeyOf(std::span<const std::byte> file) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(file.data(), file.size(), Secret());
  return {hash.high64, hash.low64};
}

PictureKey KeyOf(const picture::Picture& picture, const PicturePreparation& preparation,
                 std::string_view tenant) {
  std::vector<int64_t> numbers = {picture.width,
                                  picture.height,
                                  static_cast<int64_t>(preparation.fit),
                                  static_cast<int64_t>(preparation.filter),
                                  preparation.patch,
                                  preparation.unit,
                                  preparation.side,
                                  preparation.longest,
                                  preparation.min_pixels,
                                  preparation.max_pixels,
                                  std::ssize(tenant)};
  for (const std::array<float, 3>& values : {preparation.mean, preparation.deviation}) {
    for (const float value : values) numbers.push_back(std::bit_cast<int32_t>(value));
  }
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset_withSeed(state.get(), Secret());
  XXH3_128bits_update(state.get(), numbers.data(), numbers.size() * sizeof(int64_t));
  XXH3_128bits_update(state.get(), tenant.data(), tenant.size());
  XXH3_128bits_update(state.get(), picture.pixels.data(), picture.pixels.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return {hash.high64, hash.low64};
}

std::shared_ptr<const EncodedPicture> PictureCache::Find(const PictureKey& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  entries_.splice(entries_.end(), entries_, found->second);
  return found->second->picture;
}

std::shared_ptr<const EncodedPicture> PictureCache::Put(const PictureKey& key,
                                                        EncodedPicture picture) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) Drop(found->second);
  auto kept = std::make_shared<const EncodedPicture>(std::move(picture));
  if (kept->bytes() > max_bytes_) return kept;
  stats_.bytes += kept->bytes();
  entries_.push_back({key, kept});
  by_key_[key] = std::prev(entries_.end());
  while (stats_.bytes > max_bytes_) {
    ++stats_.evictions;
    Drop(entries_.begin());
  }
  return kept;
}

void PictureCache::Drop(Entries::iterator entry) {
  stats_.bytes -= entry->picture->bytes();
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

PictureCache::Stats PictureCache::stats() const {
  Stats stats = stats_;
  stats.pictures = std::ssize(entries_);
  return stats;
}

}  // namespace weft::vision
