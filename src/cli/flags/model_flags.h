// The options that say which model, and on what: the same for every command.
#ifndef WEFT_CLI_FLAGS_MODEL_FLAGS_H_
#define WEFT_CLI_FLAGS_MODEL_FLAGS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "formats/model_file.h"
#include "formats/sampling_advice.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::cli {

struct ModelFlags {
  // A file or whatever names a model, see hub::ModelSource; empty: the one that is built in.
  std::string path;
  std::string models_folder;  // of --models-dir
  bool or_built_in = false;   // the built-in one, where the other cannot be had
  std::string backend = "cpu";
  std::string kv = "f16";
  int threads = 0;
  int64_t context = 0;
};

// -m alone, for commands that need no more than the file.
void AddModelFlag(CLI::App* app, ModelFlags* flags);
// --or-built-in.
void AddOrBuiltInFlag(CLI::App* app, ModelFlags* flags);
// And --backend, --kv, --threads.
void AddComputeFlags(CLI::App* app, ModelFlags* flags);
void AddContextFlag(CLI::App* app, ModelFlags* flags);

// What -m names: its file, and how it wants to be sampled.
struct FlaggedModel {
  std::shared_ptr<const ModelFile> file;
  std::string name;  // that -m has for it; empty for a file and an address
  SamplingAdvice advice;
  std::string advice_by;  // who gives it, for people to read
};
// Finds it, loading it where it is not here, and opens it; without -m the built-in model.
StatusOr<FlaggedModel> OpenFlaggedModel(const ModelFlags& flags);
// For commands that do not sample.
StatusOr<std::shared_ptr<const ModelFile>> OpenFlaggedFile(const ModelFlags& flags);
// Loads it whole, with progress on stderr when that is a terminal.
StatusOr<std::shared_ptr<const Model>> LoadFlaggedModel(const ModelFlags& flags);
// The same with a file that is open.
StatusOr<std::shared_ptr<const Model>> LoadFlaggedModel(const ModelFlags& flags,
                                                        std::shared_ptr<const ModelFile> file);
// Engine options as the flags say; the rest is the default.
StatusOr<EngineOptions> FlaggedEngineOptions(const ModelFlags& flags);

// No text, template or conversation that a command reads whole is larger.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

// The text of an argument: itself, or all of stdin for "-".
StatusOr<std::string> TextOrStdin(const std::string& argument);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_MODEL_FLAGS_H_
