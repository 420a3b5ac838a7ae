// The sizes of known models, by name, for files of random weights.
#ifndef WEFT_TOOLS_MODEL_SHAPES_H_
#define WEFT_TOOLS_MODEL_SHAPES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

namespace weft::tools {

enum class VocabularyKind {
  kBytePairs,  // "gpt2": byte-level pieces and merges
  kPieces,     // "llama": scored pieces with byte fallback
};

struct ModelShape {
  std::string_view name;
  std::string_view description;
  std::string_view architecture;
  int64_t layers;
  int64_t embd;
  int64_t ffn;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t vocab;
  bool tied;  // the embedding is the output matrix too
  int64_t context;
  double rope_base;
  double norm_epsilon;
  VocabularyKind vocabulary;
  std::string_view pre_tokenizer;
  // Of mixtures of experts; `experts` is 0 in the others.
  int64_t experts = 0;
  int64_t experts_used = 0;
  int64_t expert_ffn = 0;
  // Positions that the windowed layers see; 0 where all layers see everything.
  int64_t window = 0;
};

std::span<const ModelShape> KnownShapes();

// The error names the known ones.
StatusOr<ModelShape> FindShape(std::string_view name);

// Whether such a model can exist; the error names the size and the option.
Status CheckShape(const ModelShape& shape);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_MODEL_SHAPES_H_
