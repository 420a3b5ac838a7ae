#include "cli/command.h"

namespace weft::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Continue a prompt, or answer it", MakeRunCommand},
    {"chat", "Talk to the model, in conversations side by side", MakeChatCommand},
    {"serve", "Serve the model over HTTP, for the clients people already use", MakeServeCommand},
    {"sessions", "List, fork, park or drop the conversations of a running server",
     MakeSessionsCommand},
    {"pull", "Get a model: from the hub, Ollama, an address, or by a short name", MakePullCommand},
    {"list", "List the models that are on this machine", MakeListCommand},
    {"show", "Show a model in short: what it can, and what it takes", MakeShowCommand},
    {"rm", "Remove a model that was pulled", MakeRmCommand},
    {"inspect", "Show what a model file holds", MakeInspectCommand},
    {"worker", "Answer JSON lines on stdin, for ExecuTorch's control planes", MakeWorkerCommand},
    {"tokenize", "Text to token ids", MakeTokenizeCommand},
    {"detokenize", "Token ids to text", MakeDetokenizeCommand},
    {"logits", "Write a model's raw logits for given tokens", MakeLogitsCommand},
    {"bench", "Measure speed beside the machine's limits", MakeBenchCommand},
    {"score", "Log-likelihood of continuations, for evaluations", MakeScoreCommand},
    {"template", "Show or try out a chat template", MakeTemplateCommand},
    {"completion", "Print what completes these commands in a shell", MakeCompletionCommand},
    {"manual", "Print the manual page", MakeManualCommand},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

}  // namespace weft::cli
