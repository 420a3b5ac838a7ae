// weft imatrix: how much each input of each weight matrix matters, measured on a text.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/log.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/input_sums.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/importance_matrix.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::cli {
namespace {

// Concurrent turns: enough to fill a step, few enough that progress is seen.
constexpr size_t kTurnsAtOnce = 4;
constexpr int64_t kMaxChunk = 8192;

struct ImatrixFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::vector<std::string> add;
  std::string out = "imatrix.gguf";
  int64_t chunk_tokens = 512;
  int64_t skipped_chunks = 0;
  int64_t max_chunks = 0;  // 0: all
};

// The texts' tokens in chunks, each with the token that begins a text, if the model has one.
StatusOr<std::vector<std::vector<int32_t>>> ChunksOf(const Model& model,
                                                     const ImatrixFlags& flags) {
  const Tokenizer& tokenizer = *model.tokenizer();
  std::vector<int32_t> tokens;
  for (const std::string& path : flags.texts) {
    WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
    const std::vector<int32_t> more =
        model.Encode(text, /*add_special=*/false, /*parse_special=*/true);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  const auto begins = static_cast<int64_t>(tokenizer.adds_bos());
  const int64_t n_own = flags.chunk_tokens - begins, n_tokens = std::ssize(tokens);
  if (n_tokens / n_own <= flags.skipped_chunks) {
    return InvalidArgument("the text has ", n_tokens, " tokens, which are ", n_tokens / n_own,
                           " chunks of ", flags.chunk_tokens,
                           "; give more text, a smaller --chunk, or a smaller --skip");
  }
  std::vector<std::vector<int32_t>> chunks;
  for (int64_t at = flags.skipped_chunks * n_own; at + n_own <= n_tokens; at += n_own) {
    if (flags.max_chunks > 0 && std::ssize(chunks) == flags.max_chunks) break;
    std::vector<int32_t>& chunk = chunks.emplace_back();
    if (begins > 0) chunk.push_back(tokenizer.bos());
    chunk.insert(chunk.end(), tokens.begin() + at, tokens.begin() + at + n_own);
  }
  return chunks;
}

// Sums the log-probabilities of tokens that had half a chunk before them.
class Perplexity {
 public:
  explicit Perplexity(int64_t chunk_tokens) : first_(chunk_tokens / 2) {}

  void Add(const StartedEvent& started) {
    const auto& entries = started.prompt_logprobs;
    for (int64_t i = first_; i < std::ssize(entries); ++i) {
      sum_ -= static_cast<double>(entries[static_cast<size_t>(i)].token.logprob);
      ++n_;
    }
  }
  double value() const { return n_ > 0 ? std::exp(sum_ / static_cast<double>(n_)) : 0; }

 private:
  const int64_t first_;
  double sum_ = 0;
  int64_t n_ = 0;
};

Status Finish(Turn* turn, Perplexity* perplexity) {
  Status status;
  while (auto event = turn->Next()) {
    if (const auto* started = std::get_if<StartedEvent>(&*event)) perplexity->Add(*started);
    if (const auto* done = std::get_if<DoneEvent>(&*event)) status = done->status;
  }
  return status;
}

// Runs all chunks through the model.
StatusOr<double> RunChunks(std::shared_ptr<const Model> model, const ImatrixFlags& flags,
                           const std::vector<std::vector<int32_t>>& chunks, cpu::InputSums* sums) {
  WEFT_ASSIGN_OR_RETURN(EngineOptions options, FlaggedEngineOptions(flags.model));
  options.prefix_cache = false;  // every row is computed
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(std::move(model), options));
  sums->Start();
  const bool terminal = isatty(STDERR_FILENO) == 1;
  Perplexity perplexity(flags.chunk_tokens);
  std::deque<std::shared_ptr<Turn>> turns;
  size_t n_begun = 0, n_done = 0;
  while (n_done < chunks.size()) {
    while (n_begun < chunks.size() && turns.size() < kTurnsAtOnce) {
      TurnOptions turn;
      turn.tokens = chunks[n_begun++];
      turn.max_tokens = 0;
      turn.prompt_logprobs = true;
      turn.top_logprobs = 0;
      WEFT_ASSIGN_OR_RETURN(auto begun, engine->SubmitOnce("", turn));
      turns.push_back(std::move(begun));
    }
    WEFT_RETURN_IF_ERROR(Finish(turns.front().get(), &perplexity));
    turns.pop_front();
    ++n_done;
    if (!terminal) continue;
    char text[100];
    std::snprintf(text, sizeof(text), "chunk %zu of %zu, perplexity %.3f", n_done, chunks.size(),
                  perplexity.value());
    ShowStatusLine(text);
  }
  if (terminal) ShowStatusLine("");
  return perplexity.value();
}

// Measures the texts and adds them to `matrix`.
Status Measure(const ImatrixFlags& flags, ImportanceMatrix* matrix) {
  cpu::InputSums sums;
  const auto backend = NewMeasuringCpuBackend(&sums);
  ModelOptions options;
  options.backend_object = backend.get();
  options.n_threads = flags.model.threads;
  options.context_tokens = flags.chunk_tokens;
  WEFT_ASSIGN_OR_RETURN(auto file, OpenFlaggedFile(flags.model));
  WEFT_ASSIGN_OR_RETURN(auto model, Model::FromFile(std::move(file), options));
  if (!model->uses().text) {
    return InvalidArgument(model->name(), " is for ", model->purpose(),
                           "; only models that continue texts can be measured");
  }
  WEFT_ASSIGN_OR_RETURN(const auto chunks, ChunksOf(*model, flags));
  WEFT_ASSIGN_OR_RETURN(const double perplexity, RunChunks(std::move(model), flags, chunks, &sums));
  std::fprintf(stderr, "measured %zu chunks of %lld tokens: perplexity %.3f\n", chunks.size(),
               static_cast<long long>(flags.chunk_tokens), perplexity);
  ImportanceMatrix measured;
  measured.texts = flags.texts;
  measured.n_chunks = std::ssize(chunks);
  measured.chunk_tokens = flags.chunk_tokens;
  for (auto& [tensor, entry] : sums.Take()) {
    double n_rows = 0, sum = 0;
    for (const double count : entry.counts) n_rows += count;
    for (const double value : entry.sums) sum += value;
    if (n_rows == 0) continue;
    if (!(sum <= std::numeric_limits<float>::max())) {
      return DataLoss("the inputs of ", tensor,
                      " are not finite numbers; check the model with weft run");
    }
    measured.entries[tensor] = std::move(entry);
  }
  return matrix->Add(measured);
}

Status Imatrix(const ImatrixFlags& flags) {
  WEFT_RETURN_IF_ERROR(CheckReplaceable(flags.out));
  ImportanceMatrix matrix;
  for (const std::string& path : flags.add) {
    WEFT_ASSIGN_OR_RETURN(const ImportanceMatrix earlier, ImportanceMatrix::Read(path));
    WEFT_RETURN_IF_ERROR(matrix.Add(earlier));
  }
  if (flags.texts.empty() && flags.add.empty()) {
    return WithExitCode(InvalidArgument("give a text to measure with -f, or files to add with "
                                        "--add"),
                        2);
  }
  if (!flags.texts.empty()) WEFT_RETURN_IF_ERROR(Measure(flags, &matrix));
  WEFT_RETURN_IF_ERROR(matrix.Write(flags.out));
  std::fprintf(stderr, "wrote %s: %zu matrices, %lld chunks\n", flags.out.c_str(),
               matrix.entries.size(), static_cast<long long>(matrix.n_chunks));
  return OkStatus();
}

}  // namespace

CommandBody MakeImatrixCommand(CLI::App* app) {
  auto flags = std::make_shared<ImatrixFlags>();
  AddModelFlag(app, &flags->model);
  app->add_option("-f,--file", flags->texts,
                  "A text like those that the model will see; several are joined")
      ->type_name("TEXT");
  app->add_option("-o,--output", flags->out, "The file to write")->capture_default_str();
  app->add_option("--chunk", flags->chunk_tokens, "Tokens of a chunk; each is read by itself")
      ->check(CLI::Range(int64_t{8}, kMaxChunk))
      ->capture_default_str();
  app->add_option("--chunks", flags->max_chunks, "Measure at most this many chunks; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--skip", flags->skipped_chunks,
                  "Skip this many chunks first: those that an earlier run measured")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  app->add_option("--add", flags->add,
                  "Add up with an importance matrix from earlier; may be given several times")
      ->type_name("FILE");
  app->add_option("--threads", flags->model.threads, "0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->footer(
      "\nRuns the texts through the model on the processor, and writes how large the inputs of\n"
      "each weight matrix are. weft-quantize --imatrix then keeps the weights that matter most\n"
      "more exact: the fewer bits, the more it helps. A hundred chunks are enough. The file is\n"
      "llama.cpp's, so its programs read it too.\n"
      "\n"
      "Examples:\n"
      "  weft imatrix -m model-f16.gguf -f notes.txt -f code.txt -o imatrix.gguf\n"
      "  weft-quantize --type IQ3_S --imatrix imatrix.gguf model-f16.gguf model-iq3_s.gguf\n"
      "  weft imatrix -m model-f16.gguf -f notes.txt --skip 100 --add imatrix.gguf -o more.gguf\n"
      "  weft imatrix --add part1.gguf --add part2.gguf -o both.gguf");
  return [flags] { return Imatrix(*flags); };
}

}  // namespace weft::cli
