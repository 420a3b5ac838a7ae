// weft worker: JSON lines on stdin and stdout, for ExecuTorch's control planes.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "answer/answer_ends.h"
#include "answer/answerer.h"
#include "base/files/file_descriptor.h"
#include "base/strings.h"
#include "base/system.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/reply_flags.h"
#include "cli/flags/sampling_flags.h"
#include "doors/worker/worker.h"

namespace weft::cli {
namespace {

constexpr size_t kMaxLineBytes = size_t{256} << 20;

struct WorkerFlags {
  ModelFlags model;
  SamplingFlags sampling;
  ReplyFlags reply;
  std::string tokenizer_path;
  std::string data_path;
  int max_sessions = 16;
  bool warm_resume = true;
  int64_t bos_id = -1;
  int64_t eos_id = -1;
  int64_t max_image_bytes = -1;  // -1: not given
  std::string artifact_mode = "auto";
  // Passed by launchers for models with drafts and images; ignored.
  int dflash_block_length = 0;
  int dflash_n_draft = 0;
  bool dflash_draft_argmax = false;
  bool cuda_graph = false;
  std::string pos_embed_path;
};

// Waits for SIGTERM and SIGINT. Create it before any other thread, so that all of them leave these
// signals alone.
class StopSignals {
 public:
  static StatusOr<std::unique_ptr<StopSignals>> Install() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    FileDescriptor signals(OpenSignals(set));
    if (signals.get() < 0) return ErrnoStatus(errno, "cannot wait for signals");
    int ends[2];
    if (MakePipe(ends) != 0) return ErrnoStatus(errno, "cannot make a pipe");
    return std::unique_ptr<StopSignals>(
        new StopSignals(std::move(signals), FileDescriptor(ends[0]), FileDescriptor(ends[1])));
  }

  // Calls `on_stop` on a separate thread at the first signal; from then on Wait returns false.
  // `on_stop` must live until Unwatch.
  void Watch(std::function<void()> on_stop) {
    watcher_ = std::thread([this, on_stop = std::move(on_stop)] {
      pollfd fds[] = {{.fd = signals_.get(), .events = POLLIN},
                      {.fd = end_read_.get(), .events = POLLIN}};
      while (poll(fds, std::size(fds), -1) < 0 && errno == EINTR) continue;
      if ((fds[0].revents & POLLIN) != 0) on_stop();
    });
  }
  void Unwatch() {
    end_write_ = FileDescriptor();
    watcher_.join();
  }

  // Waits until stdin is readable or at its end; false if a signal came first. The signal remains
  // pending, since nobody reads it.
  bool WaitForStdin() const {
    pollfd fds[] = {{.fd = signals_.get(), .events = POLLIN},
                    {.fd = STDIN_FILENO, .events = POLLIN}};
    while (poll(fds, std::size(fds), -1) < 0 && errno == EINTR) continue;
    return fds[0].revents == 0;
  }

 private:
  StopSignals(FileDescriptor signals, FileDescriptor end_read, FileDescriptor end_write)
      : signals_(std::move(signals)),
        end_read_(std::move(end_read)),
        end_write_(std::move(end_write)) {}

  const FileDescriptor signals_, end_read_;
  FileDescriptor end_write_;
  std::thread watcher_;
};

// Reads lines from stdin.
class LineReader {
 public:
  explicit LineReader(const StopSignals* signals) : signals_(*signals) {}

  // The next line without its line end; nullopt at the end of stdin or after a signal. Text after
  // the last line end counts as a line.
  StatusOr<std::optional<std::string>> Next() {
    while (true) {
      const size_t end = buffer_.find('\n', searched_);
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        searched_ = 0;
        return line;
      }
      searched_ = buffer_.size();
      if (buffer_.size() > kMaxLineBytes) {
        return ResourceExhausted("a line on stdin is longer than ", HumanBytes(kMaxLineBytes));
      }
      if (!signals_.WaitForStdin()) return std::optional<std::string>();
      char bytes[65536];
      const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "cannot read stdin");
      if (n == 0) {
        if (buffer_.empty()) return std::optional<std::string>();
        return std::exchange(buffer_, std::string());
      }
      buffer_.append(bytes, static_cast<size_t>(n));
    }
  }

 private:
  const StopSignals& signals_;
  std::string buffer_;
  size_t searched_ = 0;  // no line end before it
};

Status WriteLine(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return ErrnoStatus(errno, "cannot write to stdout");
  }
  return OkStatus();
}

// Other workers' files hold their draft model themselves; a GGUF file does not.
Status CheckArtifactMode(const WorkerFlags& flags) {
  if (flags.artifact_mode != "dflash" || !flags.model.draft_path.empty()) return OkStatus();
  return InvalidArgument(
      "--artifact_mode dflash needs a draft model, which is not part of the model file: name one "
      "with --draft-model");
}

StatusOr<serve::WorkerOptions> WorkerOptionsOf(const WorkerFlags& flags,
                                               const SamplingAdvice& of_model, const Model& model) {
  serve::WorkerOptions options;
  options.advice = AdviceWith(flags.sampling, of_model);
  options.seed = SamplingWith(flags.sampling, of_model).seed;
  options.ends = serve::EndsOf(of_model, *model.tokenizer());
  options.end_loops = flags.sampling.end_loops;
  // Prompts come as text: the prompt itself asks the model to think or not, so only the thought can
  // be limited.
  options.thought = {.tokens = flags.reply.reasoning == "off" ? 0 : flags.reply.reasoning_budget,
                     .message = flags.reply.reasoning_budget_message};
  options.max_sessions = flags.max_sessions;
  options.warm_resume = flags.warm_resume;
  options.tells_no_images = flags.max_image_bytes >= 0;
  for (const int64_t id : {flags.bos_id, flags.eos_id}) {
    if (id >= model.n_vocab()) {
      return InvalidArgument("token ", id, " of --bos_id or --eos_id is outside the vocabulary of ",
                             model.n_vocab(), " tokens");
    }
  }
  if (flags.bos_id >= 0) options.prompt_prefix.push_back(static_cast<int32_t>(flags.bos_id));
  if (flags.eos_id >= 0) options.stop_tokens.push_back(static_cast<int32_t>(flags.eos_id));
  return options;
}

void NoteUnreadFiles(const WorkerFlags& flags) {
  for (const std::string& path : {flags.tokenizer_path, flags.data_path, flags.pos_embed_path}) {
    if (path.empty() || path == flags.model.path) continue;
    std::fprintf(stderr, "weft worker: %s is ignored: weights and tokenizer come from %s\n",
                 Printable(path, 300).c_str(), Printable(flags.model.path, 300).c_str());
  }
}

Status RunWorker(const WorkerFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto signals, StopSignals::Install());
  WEFT_RETURN_IF_ERROR(CheckArtifactMode(flags));
  NoteUnreadFiles(flags);
  WEFT_ASSIGN_OR_RETURN(EngineOptions engine_options, FlaggedEngineOptions(flags.model));
  engine_options.prefix_cache = flags.warm_resume;
  engine_options.max_sessions = std::max(engine_options.max_sessions, flags.max_sessions + 1);
  WEFT_ASSIGN_OR_RETURN(const FlaggedModel found, OpenFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model, found.file));
  WEFT_ASSIGN_OR_RETURN(engine_options.draft_model, LoadFlaggedDraft(flags.model, *model));
  WEFT_ASSIGN_OR_RETURN(serve::WorkerOptions options, WorkerOptionsOf(flags, found.advice, *model));
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, engine_options));

  WEFT_ASSIGN_OR_RETURN(const auto answerer, serve::Answerer::ForCommand(model, engine.get()));
  serve::JsonlWorker worker(answerer.get(), std::move(options), WriteLine);
  signals->Watch([&worker] { worker.Stop(); });
  Status status = worker.Start();
  LineReader lines(signals.get());
  while (status.ok()) {
    auto line = lines.Next();
    if (!line.ok()) {
      status = line.status();
    } else if (!line->has_value()) {
      break;
    } else {
      status = worker.Handle(**line);
    }
  }
  signals->Unwatch();
  return status;
}

// Flags of ExecuTorch's launcher for models with drafts and images.
void AddLauncherFlags(CLI::App* app, WorkerFlags* flags) {
  app->add_option("--artifact_mode", flags->artifact_mode,
                  "How to run the model: dflash needs a --draft-model, with which auto drafts too")
      ->check(CLI::IsMember({"auto", "autoregressive", "dflash"}))
      ->capture_default_str();
  app->add_option("--max_image_bytes", flags->max_image_bytes,
                  "Accepted; the first line then says that images are not supported")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  constexpr char kNotRead[] = "Accepted and ignored";
  app->add_option("--dflash_block_length", flags->dflash_block_length, kNotRead);
  app->add_option("--dflash_n_draft", flags->dflash_n_draft, kNotRead);
  app->add_option("--dflash_draft_argmax", flags->dflash_draft_argmax, kNotRead);
  app->add_option("--cuda_graph", flags->cuda_graph, kNotRead);
  app->add_option("--pos_embed_path", flags->pos_embed_path, kNotRead);
}

}  // namespace

CommandBody MakeWorkerCommand(CLI::App* app) {
  auto flags = std::make_shared<WorkerFlags>();
  app->add_option("--model_path", flags->model.path, "Model: a GGUF file, or a name as for -m")
      ->required();
  app->add_option("--tokenizer_path", flags->tokenizer_path,
                  "Accepted and ignored: the tokenizer is in the model file");
  app->add_option("--data_path", flags->data_path,
                  "Accepted and ignored: the weights are in the model file");
  app->add_option("--max_sessions", flags->max_sessions,
                  "Number of sessions, including one for requests without a name")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--warm_resume", flags->warm_resume,
                  "Reuse the KV cache for a session's next prompt (false: for comparison)")
      ->capture_default_str();
  app->add_option("--bos_id", flags->bos_id, "Token to insert before every prompt (-1: none)")
      ->check(CLI::Range(-1, 1 << 30));
  app->add_option("--eos_id", flags->eos_id, "Additional token that ends a reply")
      ->check(CLI::Range(-1, 1 << 30));
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  AddContextFlag(app, &flags->model);
  // Defaults for requests that omit them.
  AddSamplingFlags(app, &flags->sampling);
  AddReplyFlags(app, &flags->reply);
  AddLauncherFlags(app, flags.get());
  app->footer(
      "\nReads one JSON object per line from stdin and writes only answers to stdout; ends at the\n"
      "end of stdin. docs/api.md describes the protocol.");
  return [flags] { return RunWorker(*flags); };
}

}  // namespace weft::cli
