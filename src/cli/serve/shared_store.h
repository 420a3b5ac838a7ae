// --store of weft serve.
#ifndef WEFT_CLI_SERVE_SHARED_STORE_H_
#define WEFT_CLI_SERVE_SHARED_STORE_H_

#include <string>

#include "base/status.h"
#include "doors/host/server_options.h"
#include "weft/shared_store.h"

namespace weft::cli {

struct SharedStore {
  SharedStoreOptions options;  // without objects if no flag asks for a store
  std::string line;            // for the log; empty: there is none
};

// Checks the flags and probes the store, which takes some requests to it. An error says which flag
// to add, or which promise the store breaks.
StatusOr<SharedStore> OpenSharedStore(const serve::ServerOptions& flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SHARED_STORE_H_
