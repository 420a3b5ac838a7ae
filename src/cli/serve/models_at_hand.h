// The models of this machine as the server tells of them: what each is, what it takes, and the
// command that serves it.
//
// Blocking, as it opens the files; any thread.
#ifndef WEFT_CLI_SERVE_MODELS_AT_HAND_H_
#define WEFT_CLI_SERVE_MODELS_AT_HAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "api/server/local_models.h"
#include "model/model_spec.h"

namespace weft::cli {

// What a session keeps of its last `n_tokens` tokens, keys and values as f16.
int64_t SessionBytes(const ModelSpec& spec, int64_t n_tokens);

// "--host" and "--port" as a command has them that listens there, each behind a space; nothing
// of what is the default.
std::string AddressFlags(const std::string& host, int port);

// `models_folder`: of --models-dir. `served_path`: the model's that is served, also that of the
// one in the box, which is listed too. `flags`: what the command has behind the model.
std::vector<serve::LocalModelCard> ModelsAtHand(const std::string& models_folder,
                                                const std::string& served_path,
                                                const std::string& flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_MODELS_AT_HAND_H_
