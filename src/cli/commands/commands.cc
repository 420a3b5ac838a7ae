#include <string>

#include "absl/strings/cord.h"
#include "cli/commands/command.h"

namespace weft::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Answer a question, or continue a text", MakeRunCommand},
    {"chat", "Talk to the model, in conversations side by side", MakeChatCommand},
    {"serve", "Serve the model over HTTP, for the clients people already use", MakeServeCommand},
    {"sessions", "List, fork, park or drop the conversations of a running server",
     MakeSessionsCommand},
    {"ps", "List the servers that run on this machine", MakePsCommand},
    {"pull", "Get a model: from the hub, Ollama, an address, or by a short name", MakePullCommand},
    {"list", "List the models that are on this machine", MakeListCommand},
    {"show", "Show a model in short: what it can, and what it takes", MakeShowCommand},
    {"rm", "Remove a model that was pulled", MakeRmCommand},
    {"inspect", "Show what a model file holds", MakeInspectCommand},
    {"worker", "Answer JSON lines on stdin, for ExecuTorch's control planes", MakeWorkerCommand},
    {"tokenize", "Text to token ids", MakeTokenizeCommand},
    {"detokenize", "Token ids to text", MakeDetokenizeCommand},
    {"constrain", "Try out a JSON Schema, a grammar or a regular expression", MakeConstrainCommand},
    {"logits", "Write a model's raw logits for given tokens", MakeLogitsCommand},
    {"bench", "Measure speed beside the machine's limits", MakeBenchCommand},
    {"score", "Log-likelihood of continuations, for evaluations", MakeScoreCommand},
    {"template", "Show or try out a chat template", MakeTemplateCommand},
    {"completion", "Print what completes these commands in a shell", MakeCompletionCommand},
    {"manual", "Print the manual page", MakeManualCommand},
};

constexpr char kExitCode[] = "weft/exit_code";

}  // namespace

Status WithExitCode(Status status, int code) {
  status.SetPayload(kExitCode, absl::Cord(std::string(1, static_cast<char>(code))));
  return status;
}

int ExitCodeOf(const Status& status) {
  const auto code = status.GetPayload(kExitCode);
  return code ? std::string(*code)[0] : status.ok() ? 0 : 1;
}

std::span<const Command> Commands() { return kCommands; }

}  // namespace weft::cli
