// Well-known models on the Hugging Face Hub, with their memory needs, which `weft models` suggests.
// Figures are those of the models' own files and configurations; unlike the catalogue's entries, no
// test fetches them.
//
// Constants; any thread.
#ifndef WEFT_MODEL_HUB_NAMES_KNOWN_MODELS_H_
#define WEFT_MODEL_HUB_NAMES_KNOWN_MODELS_H_

#include <cstdint>
#include <span>

namespace weft::hub {

struct KnownModel {
  enum class Use { kChat, kCode, kEmbeddings };

  const char* name;  // for -m
  Use use;
  const char* about;  // who it is good for, in a few words
  double file_gb;     // in 10^9 bytes
  int64_t context;    // tokens
  // KV cache per token at f16. Sliding windows, which need less, are not taken into account.
  int64_t kv_bytes_per_token;
  const char* license;

  int64_t file_bytes() const { return static_cast<int64_t>(file_gb * 1e9); }
};

// By use, then by size.
std::span<const KnownModel> KnownModels();

// "chat", "code", "embeddings".
const char* NameOf(KnownModel::Use use);

// How many conversations of that many tokens fit into `free_bytes` next to the model; 0: it does
// not fit. At most 999.
int64_t ConversationsThatFit(const KnownModel& model, int64_t n_tokens, int64_t free_bytes);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NAMES_KNOWN_MODELS_H_
