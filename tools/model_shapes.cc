#include "tools/model_shapes.h"

#include <tuple>
#include <vector>

namespace weft::tools {
namespace {

constexpr VocabularyKind kBytePairs = VocabularyKind::kBytePairs;
constexpr VocabularyKind kPieces = VocabularyKind::kPieces;

// clang-format off
constexpr ModelShape kShapes[] = {
    // name, description, architecture,
    //   layers, embd, ffn, heads, kv_heads, head_dim, vocab, tied, context, rope, epsilon, vocabulary
    {"qwen3-0.6b", "Qwen3 0.6B", "qwen3",
     28, 1024, 3072, 16, 8, 128, 151936, true, 40960, 1e6, 1e-6, kBytePairs, "qwen2"},
    {"qwen3-8b", "Qwen3 8B", "qwen3",
     36, 4096, 12288, 32, 8, 128, 151936, false, 40960, 1e6, 1e-6, kBytePairs, "qwen2"},
    {"tinyllama-1.1b", "TinyLlama 1.1B", "llama",
     22, 2048, 5632, 32, 4, 64, 32000, false, 2048, 1e4, 1e-5, kPieces, "default"},
    {"llama-8b", "Llama 3 8B", "llama",
     32, 4096, 14336, 32, 8, 128, 128256, false, 8192, 5e5, 1e-5, kBytePairs, "llama-bpe"},
    {"gemma3-1b", "Gemma 3 1B, 5 of 6 layers windowed", "gemma3",
     26, 1152, 6912, 4, 1, 256, 262144, true, 32768, 1e6, 1e-6, kPieces, "default",
     0, 0, 0, 512},
    {"moe-2b", "32 experts of 512, 4 used; 2.1B weights, 0.5B used per token", "qwen3moe",
     32, 1024, 3072, 16, 4, 128, 151936, false, 32768, 1e6, 1e-6, kBytePairs, "qwen2",
     32, 4, 512},
    {"lfm2-1.2b", "LFM2 1.2B, 6 of 16 layers attend", "lfm2",
     16, 2048, 8192, 32, 8, 64, 65536, true, 128000, 1e6, 1e-5, kBytePairs, "lfm2",
     0, 0, 0, 0, "ccaccaccacacacac", 3},
    {"qwen3.5-0.8b", "Qwen3.5 0.8B, every 4th layer attends", "qwen35",
     24, 1024, 3584, 8, 2, 256, 248320, true, 262144, 1e7, 1e-6, kBytePairs, "qwen35",
     0, 0, 0, 0, "ddda", 4, 16, 128, 128, 16, 64},
    {"tiny-llama", "for tests", "llama",
     4, 256, 512, 4, 2, 64, 1024, false, 4096, 1e4, 1e-5, kPieces, "default"},
    {"tiny-qwen3", "for tests", "qwen3",
     4, 256, 512, 4, 2, 64, 2048, true, 4096, 1e6, 1e-6, kBytePairs, "qwen2"},
    {"tiny-gemma3", "for tests", "gemma3",
     7, 256, 512, 4, 1, 64, 1024, true, 4096, 1e6, 1e-6, kPieces, "default",
     0, 0, 0, 64},
    {"tiny-qwen2vl", "for tests", "qwen2vl",
     4, 256, 512, 4, 2, 64, 2048, true, 4096, 1e6, 1e-6, kBytePairs, "qwen2"},
    {"tiny-qwen3vl", "for tests", "qwen3vl",
     4, 256, 512, 4, 2, 64, 2048, true, 4096, 1e6, 1e-6, kBytePairs, "qwen2"},
    {"tiny-moe", "for tests: 8 experts of 256, 2 used", "qwen3moe",
     3, 256, 512, 4, 2, 64, 2048, false, 4096, 1e6, 1e-6, kBytePairs, "qwen2",
     8, 2, 256},
    {"tiny-deepseek4", "for tests: 8 experts of 128, 2 used; entries of 4 and of 128 positions",
     "deepseek4",
     4, 256, 512, 4, 1, 64, 2048, false, 4096, 1e4, 1e-6, kBytePairs, "deepseek-v3",
     8, 2, 128, 32, "wxhx", 0, 0, 0, 0, 0, 16},
    {"tiny-lfm2", "for tests", "lfm2",
     5, 256, 512, 4, 2, 64, 2048, true, 4096, 1e6, 1e-5, kBytePairs, "lfm2",
     0, 0, 0, 0, "cca", 3},
    {"tiny-qwen35", "for tests", "qwen35",
     4, 256, 512, 4, 2, 64, 2048, false, 4096, 1e7, 1e-6, kBytePairs, "qwen35",
     0, 0, 0, 0, "ddda", 4, 4, 64, 64, 2, 16},
    {"tiny-qwen35-mtp", "for tests: with a prediction head", "qwen35",
     4, 256, 512, 4, 2, 64, 2048, false, 4096, 1e7, 1e-6, kBytePairs, "qwen35",
     0, 0, 0, 0, "ddda", 4, 4, 64, 64, 2, 16, 1},
    {"tiny-glm4moe-mtp", "for tests: 8 experts of 128, 2 used, with a prediction head", "glm4moe",
     3, 256, 512, 4, 2, 64, 2048, false, 4096, 1e6, 1e-5, kBytePairs, "qwen2",
     8, 2, 128, 0, {}, 0, 0, 0, 0, 0, 32, 1},
    {"tiny-mamba2", "for tests: nothing but state spaces", "mamba2",
     3, 256, 0, 0, 0, 0, 1024, true, 4096, 1e4, 1e-5, kPieces, "default",
     0, 0, 0, 0, "s", 4, 8, 64, 32, 1},
    {"tiny-granitehybrid", "for tests", "granitehybrid",
     4, 256, 512, 4, 2, 64, 2048, true, 4096, 1e4, 1e-5, kBytePairs, "qwen2",
     0, 0, 0, 0, "ssas", 4, 8, 64, 32, 2},
};
// clang-format on

// Larger than any model, small enough that no product of three overflows.
constexpr int64_t kMaxSize = int64_t{1} << 20;

}  // namespace

std::span<const ModelShape> KnownShapes() { return kShapes; }

StatusOr<ModelShape> FindShape(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  return InvalidArgument("there is no shape \"", Printable(name), "\", there are ",
                         StrJoin(names, ", "));
}

namespace {

Status CheckAttention(const ModelShape& shape) {
  if (shape.heads % shape.kv_heads != 0) {
    return InvalidArgument("--heads (", shape.heads, ") must be a multiple of --kv-heads (",
                           shape.kv_heads, ")");
  }
  if (shape.head_dim % 2 != 0 || shape.rope_dim > shape.head_dim) {
    return InvalidArgument("--head-dim (", shape.head_dim,
                           ") must be even, as rope turns pairs, and at least ", shape.rope_dim);
  }
  return OkStatus();
}

}  // namespace

Status CheckShape(const ModelShape& shape) {
  // Mamba 2 has neither attention nor a feed-forward.
  const int64_t least = shape.architecture == "mamba2" ? 0 : 1;
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"--embd", shape.embd, 1},
      {"--ffn", shape.ffn, least},
      {"--heads", shape.heads, least},
      {"--kv-heads", shape.kv_heads, least},
      {"--head-dim", shape.head_dim, least},
      {"--context", shape.context, 1},
      {"--vocab", shape.vocab, 1},
  };
  for (const auto& [option, size, smallest] : sizes) {
    if (size < smallest || size > kMaxSize) {
      return InvalidArgument(option, " is ", size, ", it must be from ", smallest, " to ",
                             kMaxSize);
    }
  }
  if (shape.layers < 1 || shape.layers > 1024) {
    return InvalidArgument("--layers is ", shape.layers, ", it must be from 1 to 1024");
  }
  const bool may_predict = shape.architecture == "qwen35" || shape.architecture == "glm4moe";
  if (shape.predictors < 0 || shape.predictors > (may_predict ? 16 : 0)) {
    return InvalidArgument("--predictors is ", shape.predictors, ", it must be from 0 to ",
                           may_predict ? 16 : 0, " with the architecture ", shape.architecture);
  }
  if (shape.kv_heads > 0) WEFT_RETURN_IF_ERROR(CheckAttention(shape));
  if (shape.architecture != "qwen3moe" && shape.architecture != "glm4moe" &&
      shape.architecture != "deepseek4") {
    if (shape.experts == 0 && shape.experts_used == 0 && shape.expert_ffn == 0) return OkStatus();
    return InvalidArgument("the architecture ", shape.architecture, " has no experts");
  }
  if (shape.experts < 1 || shape.experts > 1024 || shape.expert_ffn < 1 ||
      shape.expert_ffn > kMaxSize) {
    return InvalidArgument("--experts must be from 1 to 1024, --expert-ffn from 1 to ", kMaxSize);
  }
  if (shape.experts_used < 1 || shape.experts_used > shape.experts) {
    return InvalidArgument("--experts-used (", shape.experts_used,
                           ") must be from 1 to --experts (", shape.experts, ")");
  }
  return OkStatus();
}

}  // namespace weft::tools
