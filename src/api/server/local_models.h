// GET /v1/models/local: the models that could be served on this machine, for who decides about
// it. The server has one model as long as it runs; the answer says with which command another
// is served, and what that takes.
#ifndef WEFT_API_SERVER_LOCAL_MODELS_H_
#define WEFT_API_SERVER_LOCAL_MODELS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "http/router.h"

namespace weft::serve {

struct LocalModelCard {
  std::string name;   // by which -m finds it
  std::string where;  // whose folder it is in
  std::string title, architecture, quantization;
  int64_t n_bytes = 0;  // of its files, which its weights take in memory, too
  int64_t n_parameters = 0;
  int64_t context_tokens = 0;
  // What a conversation of `session_tokens` takes beside the weights.
  int64_t session_tokens = 0;
  int64_t session_bytes = 0;
  bool is_served = false;
  std::string command;  // that serves it
  std::string problem;  // why it cannot be; empty: it can
};

// Called on a thread of the server, for each request; may read files.
using ListLocalModels = std::function<std::vector<LocalModelCard>()>;

// Before RegisterServerApi, whose /v1/models/{id} would take the path.
void RegisterLocalModelsApi(Router& router, ListLocalModels list);

}  // namespace weft::serve

#endif  // WEFT_API_SERVER_LOCAL_MODELS_H_
