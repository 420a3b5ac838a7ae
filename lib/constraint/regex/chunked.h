// A table that grows without copying: elements are in chunks of one size and never move.
#ifndef WEFT_CONSTRAINT_REGEX_CHUNKED_H_
#define WEFT_CONSTRAINT_REGEX_CHUNKED_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace weft::constraint {

template <typename T, size_t kChunkBytes = 8192>
class Chunked {
 public:
  static constexpr size_t kChunk = std::bit_floor(kChunkBytes / sizeof(T));

  Chunked() = default;
  Chunked(const Chunked& other) {
    chunks_.reserve(other.chunks_.size());
    for (const std::vector<T>& chunk : other.chunks_) {
      Open(chunk.size());
      chunks_.back().insert(chunks_.back().end(), chunk.begin(), chunk.end());
    }
  }
  Chunked(Chunked&& other) noexcept = default;
  Chunked& operator=(Chunked other) noexcept {
    chunks_ = std::move(other.chunks_);
    return *this;
  }
  ~Chunked() = default;

  // The number of elements. REQUIRES: none were added by AddRun.
  size_t size() const {
    return chunks_.empty() ? 0 : (chunks_.size() - 1) * kChunk + chunks_.back().size();
  }
  bool empty() const { return chunks_.empty(); }
  T& operator[](size_t i) { return chunks_[i / kChunk][i % kChunk]; }
  const T& operator[](size_t i) const { return chunks_[i / kChunk][i % kChunk]; }
  void push_back(const T& value) {
    if (Room() == 0) Open(1);
    chunks_.back().push_back(value);
  }

  // Adds contiguous elements and returns the index of the first. If the last chunk has too little
  // room, the run starts a new one.
  size_t AddRun(std::span<const T> run) {
    if (run.empty()) return 0;
    if (Room() < run.size()) Open(run.size());
    const size_t first = size();
    chunks_.back().insert(chunks_.back().end(), run.begin(), run.end());
    return first;
  }
  T* Run(size_t first) { return &(*this)[first]; }
  const T* Run(size_t first) const { return &(*this)[first]; }
  std::span<const T> Run(size_t first, size_t count) const {
    if (count == 0) return {};
    return {&(*this)[first], count};
  }

  // The capacity of all chunks in bytes.
  size_t bytes() const { return capacity_ * sizeof(T); }

 private:
  // Free elements in the last chunk.
  size_t Room() const {
    if (chunks_.empty()) return 0;
    return kChunk - std::min(kChunk, chunks_.back().size());
  }
  void Open(size_t least) {
    const size_t elements = std::max(kChunk, least);
    chunks_.emplace_back().reserve(elements);
    capacity_ += elements;
  }

  std::vector<std::vector<T>> chunks_;
  size_t capacity_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_CHUNKED_H_
