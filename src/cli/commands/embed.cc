// weft embed: the vectors of texts.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal/output.h"
#include "doors/api/text_vectors.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

// Concurrent turns: enough to fill a step, few enough that output flows.
constexpr size_t kTextsAtOnce = 32;

struct EmbedFlags {
  ModelFlags model;
  std::string input;
  std::string npy;
  int64_t dimensions = 0;
  bool raw = false;
};

// A line is a text, or an object with one.
std::string TextOf(const std::string& line) {
  if (!line.starts_with('{')) return line;
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool has_text = json.is_object() && json.contains("text") && json["text"].is_string();
  return has_text ? json["text"].get<std::string>() : line;
}

// A matrix in NumPy's format, whose number of rows is known at the end.
class NpyFile {
 public:
  explicit NpyFile(std::string path) : path_(std::move(path)) {}

  void Add(std::span<const float> row) {
    width_ = row.size();
    values_.insert(values_.end(), row.begin(), row.end());
  }
  Status Write() const {
    constexpr size_t kAlignment = 64, kFixed = 10;
    const size_t n_rows = width_ > 0 ? values_.size() / width_ : 0;
    std::string header =
        StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", n_rows, ", ", width_, "), }");
    header.append(kAlignment - 1 - (kFixed + header.size()) % kAlignment, ' ');
    header += '\n';
    std::string bytes("\x93NUMPY\x01\x00", 8);
    bytes += static_cast<char>(header.size() & 0xFF);
    bytes += static_cast<char>(header.size() >> 8);
    bytes += header;
    const auto data = std::as_bytes(std::span(values_));
    bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
    return WriteFile(path_, std::as_bytes(std::span(bytes)));
  }

 private:
  const std::string path_;
  size_t width_ = 0;
  std::vector<float> values_;
};

class Embedder {
 public:
  Embedder(Engine* engine, const EmbedFlags& flags)
      : engine_(*engine), flags_(flags), npy_(flags.npy) {}

  Status Add(const std::string& text) {
    TurnOptions options;
    options.tokens = serve::EncodeText(engine_.model(), text);
    options.vector = true;
    options.max_tokens = 0;
    auto turn = engine_.SubmitOnce("", options);
    WEFT_RETURN_IF_ERROR(Annotate(turn.status(), StrCat("text ", n_texts_ + 1, ": ")));
    ++n_texts_;
    window_.push_back(*std::move(turn));
    return window_.size() < kTextsAtOnce ? OkStatus() : TakeFirst();
  }
  Status Finish() {
    while (!window_.empty()) WEFT_RETURN_IF_ERROR(TakeFirst());
    return flags_.npy.empty() ? FlushStdout() : npy_.Write();
  }

 private:
  Status TakeFirst() {
    const std::shared_ptr<Turn> turn = std::move(window_.front());
    window_.pop_front();
    while (auto event = turn->Next()) {
      if (const auto* started = std::get_if<StartedEvent>(&*event)) Take(*started);
      if (const auto* done = std::get_if<DoneEvent>(&*event)) WEFT_RETURN_IF_ERROR(done->status);
    }
    return OkStatus();
  }

  void Take(const StartedEvent& started) {
    std::string json =
        StrCat("{\"index\":", n_taken_++, ",\"tokens\":", started.prompt_tokens, ",\"embedding\":");
    const bool pooled = engine_.model().pooling() != "none";
    if (!pooled) json += '[';
    for (const std::vector<float>& row : started.vectors) {
      std::vector<float> vector = row;
      if (flags_.dimensions > 0) vector.resize(static_cast<size_t>(flags_.dimensions));
      if (!flags_.raw && pooled) vector = serve::UnitVector(vector, 0);
      if (json.back() == ']') json += ',';
      serve::AppendVectorJson(vector, &json);
      if (!flags_.npy.empty()) npy_.Add(vector);
    }
    if (!pooled) json += ']';
    if (flags_.npy.empty()) PrintLine(json + '}');
  }

  Engine& engine_;
  const EmbedFlags& flags_;
  NpyFile npy_;
  std::deque<std::shared_ptr<Turn>> window_;
  int64_t n_texts_ = 0, n_taken_ = 0;
};

Status EmbedLines(std::istream& lines, Embedder* embedder) {
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    WEFT_RETURN_IF_ERROR(embedder->Add(TextOf(line)));
  }
  return embedder->Finish();
}

Status Embed(const EmbedFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const EngineOptions options, FlaggedEngineOptions(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model));
  if (!model->uses().vectors) {
    return InvalidArgument(model->name(), " gives no vectors of texts: it is for ",
                           model->purpose(),
                           model->uses().text ? "; --pooling makes it give them" : "");
  }
  if (flags.dimensions > model->vector_width()) {
    return InvalidArgument("--dimensions ", flags.dimensions, ": the model's vectors have ",
                           model->vector_width(), " values");
  }
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, options));
  Embedder embedder(engine.get(), flags);
  if (flags.input == "-") return EmbedLines(std::cin, &embedder);
  std::ifstream file(flags.input);
  if (!file) return NotFound("cannot read ", flags.input);
  return EmbedLines(file, &embedder);
}

}  // namespace

CommandBody MakeEmbedCommand(CLI::App* app) {
  auto flags = std::make_shared<EmbedFlags>();
  AddModelFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddContextFlag(app, &flags->model);
  AddPoolingFlag(app, &flags->model);
  app->add_option("FILE", flags->input, "Texts, one per line; - for stdin")->required();
  app->add_option("--npy", flags->npy, "Write a NumPy matrix to this file, a row for each vector");
  app->add_option("--dimensions", flags->dimensions, "Keep only the first N values of a vector")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app->add_flag("--raw", flags->raw, "Do not scale vectors to length 1");
  app->footer(
      "\nA line is a text, or a JSON object with the string \"text\". Prints one JSON object per\n"
      "text: {\"index\": from 0, \"tokens\": their number, \"embedding\": the vector}.");
  return [flags] { return Embed(*flags); };
}

}  // namespace weft::cli
