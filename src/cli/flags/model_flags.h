// The options for choosing a model and how to run it: the same for every command.
#ifndef WEFT_CLI_FLAGS_MODEL_FLAGS_H_
#define WEFT_CLI_FLAGS_MODEL_FLAGS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "model/formats/model_file.h"
#include "model/sampling/sampling_parameters.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::cli {

// --lora NAME=FILE[:SCALE].
struct AdapterFlag {
  std::string name;
  std::string path;
  std::optional<float> scale;
};

// For ModelFlags::packed_cache.
inline constexpr char kNoPackedCopies[] = "none";

struct ModelFlags {
  // A file, or anything else that names a model (see hub::ModelSource); empty: DefaultModel.
  std::string path;
  std::string spec_path;      // from --spec; empty: the one next to the file
  std::string models_folder;  // from --models-dir
  bool or_built_in = false;   // fall back to the built-in model if the other is unavailable
  bool no_built_in = false;   // a model must be named
  std::string backend = ModelOptions::kAnyBackend;
  int device = 0;
  int gpu_layers = ModelOptions::kAllLayers;
  int expert_layers = ModelOptions::kLayersThatFit;
  bool strict_bits = false;
  std::string kv = "f16";
  int threads = 0;
  int64_t context = 0;
  std::string packed_cache;  // a folder; empty: the user's own; kNoPackedCopies
  int64_t packed_cache_bytes = ModelOptions().packed_cache_bytes;
  std::string speculate;   // empty: auto with a draft model, otherwise lookup
  std::string draft_path;  // as path; empty: none
  int speculate_max = EngineOptions().max_guesses;
  std::string pooling;         // empty: as the file says
  std::string projector_path;  // from --mmproj; empty: one next to the model's file
  std::vector<AdapterFlag> adapters;
};

// Only -m and -hf, for commands that just need the file. With `positional`, such as "NAME", the
// model may also be given without -m. With `all`, several may be: all of them are there, the first
// in `flags` too.
void AddModelFlag(CLI::App* app, ModelFlags* flags, const std::string& positional = "",
                  std::vector<std::string>* all = nullptr);
// --or-built-in, --no-built-in.
void AddBuiltInFlags(CLI::App* app, ModelFlags* flags);
// --backend: one that is compiled in. `may_choose`: or ModelOptions::kAnyBackend.
void AddBackendFlag(CLI::App* app, std::string* backend, const std::string& meaning,
                    bool may_choose = false);
// Also --backend, --device, --gpu-layers, --cpu-moe, --n-cpu-moe, --strict-bits, --kv, --threads,
// --packed-cache.
void AddComputeFlags(CLI::App* app, ModelFlags* flags);
void AddContextFlag(CLI::App* app, ModelFlags* flags);
// --speculate, --speculate-max, --draft-model.
void AddSpeculationFlags(CLI::App* app, ModelFlags* flags);
void AddPoolingFlag(CLI::App* app, ModelFlags* flags);

// The model named by -m: its file, and its sampling advice.
struct FlaggedModel {
  std::shared_ptr<const ModelFile> file;
  std::string name;  // its name for -m; empty for files and URLs
  SamplingAdvice advice;
  std::string advice_by;  // the advice's origin, for display
};
// Finds the file, downloading it if necessary, and opens it; without -m the default model.
StatusOr<FlaggedModel> OpenFlaggedModel(const ModelFlags& flags);
// For commands that do not sample.
StatusOr<std::shared_ptr<const ModelFile>> OpenFlaggedFile(const ModelFlags& flags);
// Loads the whole model, with progress on stderr if that is a terminal.
StatusOr<std::shared_ptr<const Model>> LoadFlaggedModel(const ModelFlags& flags);
// The same for an open file. `told` gets the fraction loaded so far, too; may be empty.
StatusOr<std::shared_ptr<const Model>> LoadFlaggedModel(
    const ModelFlags& flags, std::shared_ptr<const ModelFile> file,
    const std::function<void(double fraction)>& told = {});
// What drafts for the model: that of --draft-model, or its own prediction head; null where the
// flags want neither.
StatusOr<std::shared_ptr<const Model>> LoadFlaggedDraft(const ModelFlags& flags,
                                                        const Model& model);
// Engine options from the flags; the rest, and the draft model, are defaults.
StatusOr<EngineOptions> FlaggedEngineOptions(const ModelFlags& flags);

// Limit for texts, templates and conversations that a command reads as a whole.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

// The argument itself, or all of stdin for "-".
StatusOr<std::string> TextOrStdin(const std::string& argument);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_MODEL_FLAGS_H_
