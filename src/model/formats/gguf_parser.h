// Parses the bytes of one GGUF file into checked metadata and a tensor list.
//
// A pure function; any thread. Others should use ModelFile.
#ifndef WEFT_MODEL_FORMATS_GGUF_PARSER_H_
#define WEFT_MODEL_FORMATS_GGUF_PARSER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/formats/model_file.h"

namespace weft {

// Everything points into the parsed bytes.
struct GgufContents {
  uint32_t version = 0;
  std::vector<ModelFile::KeyValue> metadata;  // in file order, keys unique
  std::vector<uint32_t> metadata_order;       // positions in `metadata`, sorted by key
  std::vector<TensorInfo> tensors;            // in file order, names unique
};

// Protects at least the first `n` bytes from changes and returns how many are protected.
using HoldBytes = std::function<StatusOr<size_t>(size_t n)>;

// Uses memory of at most a small multiple of the given bytes, whatever counts they claim. `path` is
// used in errors, each one sentence. If the bytes may change, `hold` is called before they are
// read; empty: they cannot change.
StatusOr<GgufContents> ParseGguf(std::string_view path, std::span<const std::byte> bytes,
                                 const HoldBytes& hold = {});

// "<path>: key <key>: <what>" and "<path>: tensor <tensor>: <what>".
Status GgufKeyError(std::string_view path, std::string_view key, std::string_view what);
Status GgufTensorError(std::string_view path, std::string_view tensor, std::string_view what);

// Fills `order` with the positions 0..n-1 sorted by name_of(position). Returns a position with a
// duplicate name, if there is one.
template <typename NameOf>
std::optional<uint32_t> SortByName(size_t n, NameOf name_of, std::vector<uint32_t>* order) {
  order->resize(n);
  std::iota(order->begin(), order->end(), uint32_t{0});
  std::sort(order->begin(), order->end(),
            [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
  for (size_t i = 1; i < n; ++i) {
    if (name_of((*order)[i - 1]) == name_of((*order)[i])) return (*order)[i];
  }
  return std::nullopt;
}

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_GGUF_PARSER_H_
