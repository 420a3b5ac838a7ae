#include "cli/flags/picture_flags.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "answer/pictures.h"
#include "base/log.h"
#include "base/strings.h"
#include "compute/backend.h"
#include "model/formats/model_file.h"
#include "model/hub/names/quantization.h"
#include "model/pictures/picture_spec.h"

namespace weft::cli {
namespace {

using Encoder = std::shared_ptr<const vision::PictureEncoder>;

constexpr char kNone[] = "none";

// The model's backend, if it computes encoders; otherwise the processor's.
StatusOr<const Backend*> BackendFor(const Model& model) {
  const Backend* const own = &model.backend();
  if (own->capabilities().row_input) return own;
  return FindBackend("cpu");
}

// `is_named`: by the flag, so it is used although the vocabulary casts doubt on it.
StatusOr<Encoder> LoadEncoder(const std::string& path, bool is_named, const Model& model,
                              const ModelFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(auto file, ModelFile::Open(path));
  WEFT_ASSIGN_OR_RETURN(PictureSpec spec, BuildPictureSpec(*file));
  WEFT_RETURN_IF_ERROR(serve::CheckProjector(spec, model));
  const Status fits = serve::CheckVocabulary(spec, model);
  if (!fits.ok() && !is_named) return fits;
  if (!fits.ok()) {
    LogLine(StrCat("--mmproj ", Printable(path, 300), " may be of another model: ", Message(fits)));
  }
  WEFT_ASSIGN_OR_RETURN(const Backend* const backend, BackendFor(model));
  LoadOptions options;
  options.n_threads = flags.threads;
  if (backend == &model.backend()) options.device = flags.device;
  return vision::PictureEncoder::Load(std::move(file), std::move(spec), backend, options);
}

std::vector<std::string> ProjectorsIn(const std::filesystem::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.empty() ? "." : folder, error)) {
    if (hub::IsProjectorFile(entry.path().filename().string())) {
      paths.push_back(entry.path().string());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

// In the Hub's cache also those of the repository, if the model is in a folder of it.
std::vector<std::string> ProjectorsNextTo(const std::string& model_path) {
  const std::filesystem::path folder = std::filesystem::path(model_path).parent_path();
  std::vector<std::string> paths = ProjectorsIn(folder);
  const std::filesystem::path above = folder.parent_path();
  if (paths.empty() && above.parent_path().filename() == "snapshots") paths = ProjectorsIn(above);
  return paths;
}

// The first of them that belongs to the model.
Encoder FindEncoder(const ModelFlags& flags, const Model& model) {
  if (!std::filesystem::is_regular_file(model.path())) return nullptr;
  for (const std::string& path : ProjectorsNextTo(model.path())) {
    auto encoder = LoadEncoder(path, /*is_named=*/false, model, flags);
    if (encoder.ok()) {
      LogLine(StrCat("pictures by ", Printable(path, 300), "; --mmproj none turns them off"));
      return *std::move(encoder);
    }
    LogLine(StrCat("no pictures by ", Printable(path, 300), ": ",
                   Printable(Message(encoder.status()), 500)));
  }
  return nullptr;
}

}  // namespace

void AddPictureFlags(CLI::App* app, ModelFlags* flags) {
  app->add_option("--mmproj", flags->projector_path,
                  "The model's projector, with which it sees pictures: a GGUF file (default: "
                  "mmproj*.gguf next to the model's file; none: no pictures)")
      ->type_name("FILE|none")
      ->check([](const std::string& path) { return path == kNone ? "" : CLI::ExistingFile(path); });
}

StatusOr<Encoder> LoadFlaggedEncoder(const ModelFlags& flags, const Model& model) {
  const std::string& path = flags.projector_path;
  if (path == kNone) return Encoder();
  if (path.empty()) return FindEncoder(flags, model);
  auto encoder = LoadEncoder(path, /*is_named=*/true, model, flags);
  WEFT_RETURN_IF_ERROR(Annotate(encoder.status(), "--mmproj ", Printable(path, 300), ": "));
  return encoder;
}

int64_t FlaggedProjectorBytes(const ModelFlags& flags, const std::string& model_path) {
  if (flags.projector_path == kNone) return 0;
  std::vector<std::string> paths = {flags.projector_path};
  if (flags.projector_path.empty()) paths = ProjectorsNextTo(model_path);
  int64_t most = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    if (!error) most = std::max(most, static_cast<int64_t>(bytes));
  }
  return most;
}

}  // namespace weft::cli
