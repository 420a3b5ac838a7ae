// Which model is meant where the command line names none, and which of its words is a model's name.
//
// Keeps the last model's name in the user's state folder. One thread; may ask on the terminal.
#ifndef WEFT_CLI_FLAGS_DEFAULT_MODEL_H_
#define WEFT_CLI_FLAGS_DEFAULT_MODEL_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/flags/model_finder.h"
#include "cli/flags/model_flags.h"

namespace weft::cli {

// The name of the built-in model for -m, unless there is a file of that name.
inline constexpr char kBuiltInName[] = "box";

// XDG_STATE_HOME/weft, by default ~/.local/state/weft; empty if neither variable is an absolute
// path. The folder may not exist yet.
std::string StateFolder();

// WEFT_MODEL if it is set; otherwise the model that RememberModel was told last or the catalogue's
// first, if they are on this machine; otherwise asks on a terminal whether to download the latter.
// An error says how to name one.
StatusOr<std::string> DefaultModel(const ModelFinder& finder);

// Makes the model the user's default. Where that cannot be written, nothing is remembered.
void RememberModel(const ModelFlags& flags);

// Whether a word of the command line can only be a model's name: a GGUF file, a name in the
// catalogue, of a model on this machine, owner/repo-GGUF, or one with a prefix such as "ollama:".
bool NamesModel(const ModelFinder& finder, std::string_view word);

// If the flags name no model and the first word does, moves it there. An error if the only word is
// nearly such a name.
Status TakeModelName(std::vector<std::string>* words, ModelFlags* flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_DEFAULT_MODEL_H_
