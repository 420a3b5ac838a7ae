#include "model/hub/names/known_models.h"

#include <algorithm>

namespace weft::hub {
namespace {

using Use = KnownModel::Use;

// Bytes of keys and values at f16.
constexpr int64_t Kv(int64_t layers, int64_t kv_heads, int64_t head_dim) {
  return 2 * 2 * layers * kv_heads * head_dim;
}

constexpr KnownModel kModels[] = {
    {"Qwen/Qwen3-0.6B-GGUF:Q8_0", Use::kChat, "quick answers, thinks if asked", 0.64, 40960,
     Kv(28, 8, 128), "Apache-2.0"},
    {"HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M", Use::kChat, "short English texts", 1.06,
     8192, Kv(24, 32, 64), "Apache-2.0"},
    {"bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", Use::kChat, "everyday questions", 2.02, 131072,
     Kv(28, 8, 128), "Llama 3.2"},
    {"ggml-org/gemma-3-4b-it-GGUF:Q4_K_M", Use::kChat, "many languages", 2.49, 131072,
     Kv(34, 4, 256), "Gemma"},
    {"Qwen/Qwen3-4B-GGUF:Q4_K_M", Use::kChat, "questions that need thought, tools", 2.50, 40960,
     Kv(36, 8, 128), "Apache-2.0"},
    {"Qwen/Qwen3-8B-GGUF:Q4_K_M", Use::kChat, "questions that need thought, tools", 5.03, 40960,
     Kv(36, 8, 128), "Apache-2.0"},
    {"ggml-org/gpt-oss-20b-GGUF", Use::kChat, "a mixture of experts, with tools", 12.1, 131072,
     Kv(24, 8, 64), "Apache-2.0"},
    {"Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:Q4_K_M", Use::kCode, "completion, small edits", 1.12,
     32768, Kv(28, 2, 128), "Apache-2.0"},
    {"Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q4_K_M", Use::kCode, "edits, simple agents", 4.68, 32768,
     Kv(28, 4, 128), "Apache-2.0"},
    {"bartowski/mistralai_Devstral-Small-2507-GGUF:Q4_K_M", Use::kCode, "coding agents", 14.3,
     131072, Kv(40, 8, 128), "Apache-2.0"},
    {"unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M", Use::kCode,
     "coding agents, quick for its size", 18.6, 262144, Kv(48, 4, 128), "Apache-2.0"},
    {"nomic-ai/nomic-embed-text-v1.5-GGUF:Q8_0", Use::kEmbeddings, "English search", 0.15, 2048, 0,
     "Apache-2.0"},
    {"ggml-org/embeddinggemma-300M-GGUF:Q8_0", Use::kEmbeddings, "search in many languages", 0.33,
     2048, 0, "Gemma"},
    {"Qwen/Qwen3-Embedding-0.6B-GGUF:Q8_0", Use::kEmbeddings, "search in long texts, code", 0.64,
     32768, Kv(28, 8, 128), "Apache-2.0"},
};

}  // namespace

std::span<const KnownModel> KnownModels() { return kModels; }

const char* NameOf(KnownModel::Use use) {
  switch (use) {
    case Use::kChat:
      return "chat";
    case Use::kCode:
      return "code";
    case Use::kEmbeddings:
      return "embeddings";
  }
  return "";
}

int64_t ConversationsThatFit(const KnownModel& model, int64_t n_tokens, int64_t free_bytes) {
  constexpr int64_t kMax = 999;
  // What a step computes with, and some room for everything else.
  const int64_t work_bytes = model.file_bytes() / 10 + (int64_t{256} << 20);
  const int64_t left = free_bytes - model.file_bytes() - work_bytes;
  if (left < 0) return 0;
  const int64_t each = model.kv_bytes_per_token * std::min(n_tokens, model.context);
  return each == 0 ? kMax : std::min(kMax, left / each);
}

}  // namespace weft::hub
