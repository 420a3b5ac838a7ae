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
  // Mixtures of experts only; `experts` is 0 in other models.
  int64_t experts = 0;
  int64_t experts_used = 0;
  int64_t expert_ffn = 0;
  // Positions that the windowed layers see; 0 where all layers see everything.
  int64_t window = 0;
  // Hybrids: layer i's mixer, at i modulo the length: a attention, c short convolution, d gated
  // delta net, s state space; DeepSeek V4's attention to w the window alone, x also to entries of 4
  // positions, h of 128. Empty: attention everywhere.
  std::string_view mixers = {};
  int64_t conv_taps = 0;
  // Heads of recurrent state, their width and the state's other side; groups of heads
  // that share keys.
  int64_t state_heads = 0;
  int64_t state_head_dim = 0;
  int64_t state_dim = 0;
  int64_t state_groups = 0;
  int64_t rope_dim = 0;  // rotated values per head; 0: all
  // MTP heads: extra layers at the end that attend and predict the token after the next.
  int64_t predictors = 0;
  // The vocabulary ends with the tokens that models of code fill in the middle with.
  bool fill_in = false;

  char MixerOf(int64_t layer) const {
    return mixers.empty() ? 'a' : mixers[static_cast<size_t>(layer) % mixers.size()];
  }
};

std::span<const ModelShape> KnownShapes();

// The error names the known ones.
StatusOr<ModelShape> FindShape(std::string_view name);

// Whether such a model can exist; the error names the size and the option.
Status CheckShape(const ModelShape& shape);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_MODEL_SHAPES_H_
