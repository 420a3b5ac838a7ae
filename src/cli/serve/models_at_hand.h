// The models on this machine as reported by the server: each with its description, its needs, and
// the command that serves it.
//
// Blocks, since it opens the files; any thread.
#ifndef WEFT_CLI_SERVE_MODELS_AT_HAND_H_
#define WEFT_CLI_SERVE_MODELS_AT_HAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "doors/api/server/local_models.h"
#include "model/model_spec.h"

namespace weft::cli {

// The memory for the last `n_tokens` tokens of a session, with f16 keys and values.
int64_t SessionBytes(const ModelSpec& spec, int64_t n_tokens);

// The "--host" and "--port" arguments for a server that listens there, each preceded by a space;
// defaults are omitted.
std::string AddressFlags(const std::string& host, int port);

// `models_folder`: from --models-dir. `served_path`: of the served model; may be that of the
// built-in one, which is listed too. `flags`: appended to each command after the model.
std::vector<serve::LocalModelCard> ModelsAtHand(const std::string& models_folder,
                                                const std::string& served_path,
                                                const std::string& flags);

// Well-known models of the Hugging Face Hub, as weft models suggests them, with what fits into the
// memory that is free now.
std::vector<serve::KnownModelCard> KnownModelsAtHand();

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_MODELS_AT_HAND_H_
