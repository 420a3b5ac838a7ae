#include "cli/model_flags.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace weft::cli {

void AddModelFlag(CLI::App* app, ModelFlags* flags) {
  app->add_option("-m,--model", flags->path, "Model file (GGUF; of a split model the first part)")
      ->required();
}

void AddComputeFlags(CLI::App* app, ModelFlags* flags) {
  std::vector<std::string> backends;
  for (const std::string_view name : BackendNames()) backends.emplace_back(name);
  app->add_option("--backend", flags->backend, "What computes")
      ->check(CLI::IsMember(backends))
      ->capture_default_str();
  app->add_option("--kv", flags->kv, "How keys and values are kept")
      ->check(CLI::IsMember(std::vector<std::string>{"f32", "f16", "bf16", "q8_0"}))
      ->capture_default_str();
  app->add_option("--threads", flags->threads, "Compute threads (0: one per core)")
      ->check(CLI::Range(0, 1024));
}

void AddContextFlag(CLI::App* app, ModelFlags* flags) {
  app->add_option("--ctx", flags->context,
                  "Longest context in tokens (0: what the model was trained for)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
}

StatusOr<std::shared_ptr<const ModelFile>> OpenFlaggedFile(const ModelFlags& flags) {
  return ModelFile::Open(flags.path);
}

StatusOr<std::shared_ptr<const Model>> LoadFlaggedModel(const ModelFlags& flags) {
  ModelOptions options;
  options.backend = flags.backend;
  options.n_threads = flags.threads;
  options.context_tokens = flags.context;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) {
    options.progress = [](double fraction) {
      std::fprintf(stderr, "\rloading %3.0f %%", fraction * 100);
    };
  }
  auto model = Model::Load(flags.path, options);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  return model;
}

StatusOr<KvType> ParseKvType(const std::string& name) {
  if (name == "f32") return KvType::kF32;
  if (name == "f16") return KvType::kF16;
  if (name == "bf16") return KvType::kBF16;
  if (name == "q8_0") return KvType::kQ8_0;
  return InvalidArgument("--kv ", Printable(name), " is not one of f32, f16, bf16, q8_0");
}

StatusOr<EngineOptions> FlaggedEngineOptions(const ModelFlags& flags) {
  EngineOptions options;
  options.n_threads = flags.threads;
  WEFT_ASSIGN_OR_RETURN(options.kv_type, ParseKvType(flags.kv));
  return options;
}

StatusOr<std::string> TextOrStdin(const std::string& argument) {
  if (argument != "-") return argument;
  std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  if (std::cin.bad()) return Unavailable("cannot read stdin");
  return text;
}

}  // namespace weft::cli
