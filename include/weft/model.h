// A model file, loaded once: tokenizer, and weights packed for a backend.
//
// A Model is immutable and shared: engines, front ends and any number of threads may hold it.
// Loading another file gives another Model, and each Engine runs exactly one.
#ifndef WEFT_MODEL_H_
#define WEFT_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

class Backend;
class ModelFile;
class Tokenizer;
class Weights;
namespace constraint {
class ConstraintCache;
}
struct ModelSpec;
struct RowForm;
class TextHead;

// What a model can be asked for.
struct ModelUses {
  bool text = false;     // continues a text
  bool vectors = false;  // gives a vector for what a text is about (an embedding)
  bool scores = false;   // scores how well the two texts of a pair match
};

// A LoRA adapter of a model, loaded with it.
struct LoadedAdapter {
  std::string name;
  std::string path;
  std::string fingerprint;  // equal for equal files
  // If not empty: in a text, it acts from where these tokens begin for the last time, as a turn
  // begins; in a text without them it does not act.
  std::vector<int32_t> invocation_tokens = {};
};

struct ModelOptions {
  // For device_layers and expert_layers.
  static constexpr int kAllLayers = -1, kLayersThatFit = -2;
  // For backend: an NVIDIA card if there is one with room for the model and for sessions, otherwise
  // the processor.
  static constexpr char kAnyBackend[] = "auto";

  std::string backend = "cpu";
  // Used instead of `backend`, or with kAnyBackend as that of the cards. Must outlive the model.
  const Backend* backend_object = nullptr;
  int device = 0;  // which of the backend's devices, from 0
  // How many of the last layers the backend computes, with the output; the cpu backend then
  // computes the first ones. For weights that a device has no room for: kLayersThatFit takes as
  // many as its memory holds. What is computed has other bits than either backend's alone.
  int device_layers = kAllLayers;
  // Of how many of the first layers the cpu backend computes the experts, if the model has mixtures
  // of them, and the backend all else of its layers. kLayersThatFit: of as few as help, where
  // device_layers says the same, and otherwise of none.
  int expert_layers = kLayersThatFit;
  int n_threads = 0;  // for packing; 0: one per core
  // The longest context any session will use; 0 means the model's training context. It belongs to
  // the model because some models choose their rope factors by it.
  int64_t context_tokens = 0;
  // Which rows make up a text's vector: "mean" (all), "cls" (the first), "last", or "none" (each
  // row is a vector). Empty: as the file says; if it says nothing, the model gives no vectors.
  std::string pooling = {};
  // A folder for copies of packed weights: a model that was loaded before is then mapped from its
  // copy in a fraction of the time, and programs that do so share its memory. Empty: none. A copy
  // is about as large as the model's file; those not used for longest are removed so that all of
  // them take at most `packed_cache_bytes`. Backends other than "cpu" keep none.
  std::string packed_cache = {};
  int64_t packed_cache_bytes = int64_t{32} << 30;
  // Nobody asked for copies: small models, which are packed in a moment, get none, and the model
  // is loaded without a copy if the folder cannot be made.
  bool packed_cache_is_default = false;
  // LoRA adapters in GGUF form, which turns may use (TurnOptions::adapters). Names are unique and
  // not empty.
  struct AdapterFile {
    std::string name = {};
    std::string path = {};
  };
  std::vector<AdapterFile> adapters = {};
  // Called with the fraction loaded so far; may be empty.
  std::function<void(double fraction)> progress = {};
};

class Model {
 public:
  // Opens, checks and packs the GGUF file at `path`. An error is one sentence that names the file
  // and its fault.
  static absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& path,
                                                           const ModelOptions& options);
  // The same for an open file, e.g. one embedded in the program.
  static absl::StatusOr<std::shared_ptr<const Model>> FromFile(
      std::shared_ptr<const ModelFile> file, const ModelOptions& options);
  // The small model built into the library, for trying things out without a file.
  static absl::StatusOr<std::shared_ptr<const Model>> LoadBuiltIn(const ModelOptions& options);
  // The prediction head in the model's file: a small model that guesses what `model` says next,
  // for EngineOptions::draft_model. They share the weights that both use. NOT_FOUND, saying why,
  // if there is none; UNIMPLEMENTED if the model's backend computes no heads.
  static absl::StatusOr<std::shared_ptr<const Model>> LoadHead(const Model& model,
                                                               const ModelOptions& options);
  // The same from a file of its own, such as that of Gemma 4's assistants, which reads the model's
  // KV cache. INVALID_ARGUMENT if it is another model's.
  static absl::StatusOr<std::shared_ptr<const Model>> LoadHead(
      const Model& model, std::shared_ptr<const ModelFile> head, const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& path() const;
  // general.name, or the file name without its extension.
  const std::string& name() const;
  int64_t n_vocab() const;
  // The context length the model was loaded for.
  int64_t context_tokens() const;
  // Identifies the weights and how they are used; equal for equal files. Session files record it.
  const std::string& fingerprint() const;
  // In an order that their contents decide: sums of several have the same bits after a restart with
  // other options.
  const std::vector<LoadedAdapter>& adapters() const;
  int64_t weight_bytes() const;
  // What computes ("cpu"), and whether its results have the same bits whatever else it computes.
  // A model that is divided names both, and how many layers are where: "cpu:12+cuda:20", or
  // "cuda+cpu-experts:24".
  std::string_view backend_name() const;
  // What ModelOptions::kAnyBackend chose and why, in a sentence; empty if it had no choice.
  const std::string& computing_choice() const;
  // How fast it was loaded and what limited that, for people: "1.1 GiB in 2.3 s (490 MiB/s, limited
  // by the disk)". Empty for a prediction head.
  const std::string& loading() const;
  bool same_bits() const;
  // DATA_LOSS once the file has been truncated or written to since it was opened: parts of it are
  // read while the model is in use, so it can compute nothing more.
  absl::Status CheckFile() const;

  ModelUses uses() const;
  // What it is for, in words: "text", "vectors of texts (mean)".
  std::string purpose() const;
  // How it pools the rows of a text, as in ModelOptions (empty if it gives no vectors), and how
  // many values a vector has.
  std::string_view pooling() const;
  int64_t vector_width() const;

  // --- rows: vectors in place of tokens (PromptPart) ---------------------------
  // UNIMPLEMENTED, saying why, if this model or its backend takes none.
  absl::Status CheckTakesRows() const;
  // The same for rows that belong together.
  absl::Status CheckTakesForm(const RowForm& form) const;
  // Values of a row. The first embedding_width() of them are the embedding; the others, if there
  // are any, are added by layers and may be zeros.
  int64_t row_width() const;
  int64_t embedding_width() const;
  // The rows that stand for these tokens, concatenated. Reads the file.
  absl::StatusOr<std::vector<float>> RowsOf(std::span<const int32_t> tokens) const;
  // The rows of these embeddings, concatenated: layers add nothing to them.
  std::vector<float> RowsOfEmbeddings(std::vector<float> embeddings) const;

  // --- text -----------------------------------------------------------------
  // `add_special` adds BOS and the like as the model wants them; `parse_special` recognises control
  // tokens written in the text.
  std::vector<int32_t> Encode(std::string_view text, bool add_special, bool parse_special) const;
  std::string Decode(std::span<const int32_t> tokens, bool render_special) const;
  // The file's chat template, empty if it has none.
  std::string_view chat_template() const;

  // --- for the library's own folders ------------------------------------------
  // Whether it is a prediction head loaded for a model of the same open file.
  bool IsHeadOf(const Model& model) const;
  const ModelFile& file() const;
  const std::shared_ptr<const Tokenizer>& tokenizer() const;
  const ModelSpec& spec() const;
  const Backend& backend() const;
  const std::shared_ptr<const Weights>& weights() const;
  // Null if the model gives no vectors.
  const TextHead* text_head() const;
  // Constraints compiled for its vocabulary.
  constraint::ConstraintCache& constraints() const;

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  static absl::StatusOr<std::shared_ptr<const Model>> Build(std::shared_ptr<const ModelFile> file,
                                                            const ModelOptions& options);
  static absl::StatusOr<std::shared_ptr<const Model>> BuildHead(
      const Model& model, std::shared_ptr<const ModelFile> file, const ModelSpec& spec,
      const ModelOptions& options);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif  // WEFT_MODEL_H_
