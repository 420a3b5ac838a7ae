// GET /v1/models/local: the models on this machine that could be served, and well-known ones that
// could be downloaded, for choosing one. A server keeps its model as long as it runs; the answer
// gives the command that gets or serves another one, and what that needs.
#ifndef WEFT_DOORS_API_SERVER_LOCAL_MODELS_H_
#define WEFT_DOORS_API_SERVER_LOCAL_MODELS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "doors/http/router.h"

namespace weft::serve {

struct LocalModelCard {
  std::string name;   // as accepted by -m
  std::string where;  // whose directory it is in
  std::string title, architecture, quantization;
  int64_t n_bytes = 0;  // file size, which is also the memory its weights take
  int64_t n_parameters = 0;
  int64_t context_tokens = 0;
  // Memory for a conversation of `session_tokens`, besides the weights.
  int64_t session_tokens = 0;
  int64_t session_bytes = 0;
  bool is_served = false;
  std::string command;  // the command that serves it
  std::string problem;  // why it cannot be served; empty: it can
};

struct KnownModelCard {
  std::string name;   // as accepted by -m
  std::string use;    // "chat", "code", "embeddings"
  std::string about;  // who it is good for, in a few words
  std::string license;
  int64_t n_bytes = 0;
  int64_t context_tokens = 0;
  int64_t session_tokens = 0;
  int64_t session_bytes = 0;
  int64_t sessions_that_fit =
      0;                // next to the model, in the memory that is free now; 0: not even it
  std::string command;  // the command that downloads it
};

struct ModelChoice {
  std::vector<LocalModelCard> local;
  std::vector<KnownModelCard> known;
};

// Called on a server thread for each request; may read files.
using ListLocalModels = std::function<ModelChoice()>;

// Register before RegisterServerApi, whose /v1/models/{id} would match the path.
void RegisterLocalModelsApi(Router& router, ListLocalModels list);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SERVER_LOCAL_MODELS_H_
