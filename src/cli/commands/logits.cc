// weft logits: the raw logits at every position of a token list.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/files/mapped_file.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

constexpr size_t kMaxTokenFileBytes = size_t{256} << 20;
// The context is the number of tokens rounded up to this, as other engines allocate it: models with
// two sets of rope factors choose by the allocated length.
constexpr int64_t kContextUnit = 256;
constexpr int64_t kMaxStep = 4096;
// For the rows of one step, unless the caller chose the chunks.
constexpr int64_t kLogitBytes = int64_t{128} << 20;

struct LogitsFlags {
  ModelFlags model;
  std::string tokens_path;
  std::string out_path;
  std::vector<int64_t> chunks;
};

StatusOr<std::vector<int32_t>> ReadTokens(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTokenFileBytes));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(path, " is not valid JSON");
  const nlohmann::json* list = &json;
  if (json.is_object()) {
    const auto it = json.find("tokens");
    if (it == json.end()) return InvalidArgument(path, " is an object without \"tokens\"");
    list = &*it;
  }
  if (!list->is_array()) return InvalidArgument(path, " does not contain an array of token ids");
  std::vector<int32_t> tokens;
  for (const auto& item : *list) {
    if (!item.is_number_integer() || item < 0 || item > INT32_MAX) {
      return InvalidArgument(path, ": item ", tokens.size(), " is not a token id");
    }
    tokens.push_back(item.get<int32_t>());
  }
  if (tokens.empty()) return InvalidArgument(path, " contains no tokens");
  return tokens;
}

// A file written in pieces, and removed unless it is completed.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)) {
    file_ = std::fopen(path_.c_str(), "wb");
    if (file_ == nullptr) status_ = ErrnoStatus(errno, StrCat("cannot create ", path_));
  }
  ~OutputFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    Remove();
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const Status& status() const { return status_; }
  void Write(std::span<const float> values) {
    if (!status_.ok()) return;
    if (std::fwrite(values.data(), sizeof(float), values.size(), file_) != values.size()) {
      status_ = ErrnoStatus(errno, StrCat("cannot write ", path_));
    }
  }
  Status Close() {
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0 && status_.ok()) {
      status_ = ErrnoStatus(errno, StrCat("cannot write ", path_));
    }
    if (!status_.ok()) Remove();
    return status_;
  }

 private:
  // Only regular files, not /dev/full and the like.
  void Remove() {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path_, ignored)) std::remove(path_.c_str());
  }

  const std::string path_;
  std::FILE* file_ = nullptr;
  Status status_;
};

Status Logits(LogitsFlags flags) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, ReadTokens(flags.tokens_path));
  const int64_t n = static_cast<int64_t>(tokens.size());
  flags.model.context = (n + kContextUnit - 1) / kContextUnit * kContextUnit;
  WEFT_ASSIGN_OR_RETURN(EngineOptions options, FlaggedEngineOptions(flags.model));
  options.max_step_tokens = std::min(n, kMaxStep);
  options.prefix_cache = false;
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, options));
  OutputFile out(flags.out_path);
  WEFT_RETURN_IF_ERROR(out.status());
  TurnOptions turn_options;
  turn_options.tokens = std::move(tokens);
  turn_options.max_tokens = 0;
  turn_options.prompt_chunks = flags.chunks;
  if (flags.chunks.empty()) {
    const int64_t row_bytes = model->n_vocab() * static_cast<int64_t>(sizeof(float));
    turn_options.prompt_chunks = {
        std::clamp<int64_t>(kLogitBytes / row_bytes, 1, options.max_step_tokens)};
  }
  turn_options.on_prompt_logits = [&out](int64_t position, std::span<const float> row) {
    out.Write(row);
  };
  WEFT_ASSIGN_OR_RETURN(const auto turn, engine->SubmitOnce("", turn_options));
  Status status;
  while (auto event = turn->Next()) {
    if (const auto* done = std::get_if<DoneEvent>(&*event)) status = done->status;
  }
  WEFT_RETURN_IF_ERROR(status);
  return out.Close();
}

}  // namespace

CommandBody MakeLogitsCommand(CLI::App* app) {
  auto flags = std::make_shared<LogitsFlags>();
  flags->model.kv = "f32";
  AddModelFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  app->add_option(
         "--tokens", flags->tokens_path,
         "JSON file: an array of token ids, or an object with \"tokens\"; used exactly as given")
      ->required();
  app->add_option("--out", flags->out_path,
                  "Output file: little-endian float32, one row of the vocabulary per token")
      ->required();
  app->add_option(
         "--chunk", flags->chunks,
         "Compute in chunks of N tokens (several sizes are used in turn); the result is the same")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMaxStep));
  return [flags] { return Logits(*flags); };
}

}  // namespace weft::cli
