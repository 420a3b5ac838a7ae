#include <string>

#include "absl/strings/cord.h"
#include "cli/commands/command.h"

namespace weft::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Answer a question, or continue a text", MakeRunCommand},
    {"chat", "Chat with the model, in several conversations at once", MakeChatCommand},
    {"serve", "Serve the model over HTTP for existing clients", MakeServeCommand},
    {"launch", "Start a coding agent with everything set for a server", MakeLaunchCommand,
     /*passes_words_on=*/true},
    {"sessions", "List, fork, park or delete the sessions of a running server",
     MakeSessionsCommand},
    {"why", "Explain why a running server prefilled a prompt again", MakeWhyCommand},
    {"ps", "List the servers running on this machine", MakePsCommand},
    {"top", "Watch what a running server is doing", MakeTopCommand},
    {"devices", "List the processors and cards that Weft can use", MakeDevicesCommand},
    {"pull", "Download a model (Hugging Face Hub, Ollama, URL, short name)", MakePullCommand},
    {"list", "List the models on this machine", MakeListCommand},
    {"models", "List the models on this machine, and others that it could run", MakeModelsCommand},
    {"show", "Show what a model can do, and what it needs", MakeShowCommand},
    {"rm", "Remove a downloaded model", MakeRmCommand},
    {"inspect", "Show the contents of a model file", MakeInspectCommand},
    {"worker", "Answer JSON lines on stdin, for ExecuTorch's control planes", MakeWorkerCommand},
    {"tokenize", "Convert text to token ids", MakeTokenizeCommand},
    {"detokenize", "Convert token ids to text", MakeDetokenizeCommand},
    {"constrain", "Try out a JSON Schema, a grammar or a regular expression", MakeConstrainCommand},
    {"imatrix", "Measure which weights matter, for weft-quantize", MakeImatrixCommand},
    {"logits", "Write a model's raw logits for given tokens", MakeLogitsCommand},
    {"bench", "Measure speed, compared with the machine's limits", MakeBenchCommand},
    {"embed", "Compute the vectors of texts (embeddings)", MakeEmbedCommand},
    {"score", "Compute log-likelihoods of continuations, for evaluations", MakeScoreCommand},
    {"template", "Show or try out a chat template", MakeTemplateCommand},
    {"completion", "Print a shell completion script", MakeCompletionCommand},
    {"manual", "Print the manual page", MakeManualCommand},
};

constexpr char kExitCode[] = "weft/exit_code";

}  // namespace

Invocation& TheInvocation() {
  static Invocation invocation;
  return invocation;
}

Status WithExitCode(Status status, int code) {
  status.SetPayload(kExitCode, absl::Cord(std::string(1, static_cast<char>(code))));
  return status;
}

Status SilentExit(int code) { return WithExitCode(Status(StatusCode::kUnknown, ""), code); }

int ExitCodeOf(const Status& status) {
  const auto code = status.GetPayload(kExitCode);
  return code ? static_cast<unsigned char>(std::string(*code)[0]) : status.ok() ? 0 : 1;
}

std::span<const Command> Commands() { return kCommands; }

}  // namespace weft::cli
