// LoRA adapters with random weights for a model file, for tests.
#ifndef WEFT_TOOLS_MAKE_ADAPTER_H_
#define WEFT_TOOLS_MAKE_ADAPTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/formats/model_file.h"

namespace weft::tools {

struct MakeAdapterOptions {
  int64_t rank = 8;
  uint64_t seed = 1;
  std::string type = "F16";               // in which its matrices are stored
  std::vector<uint32_t> invocation = {};  // tokens; empty: none
};

// A pair for every matrix that adapters can change, strong enough that answers differ, and for the
// embedding unless it is also the output. The same arguments give the same bytes.
StatusOr<std::string> AdapterBytes(const ModelFile& base, const MakeAdapterOptions& options);
Status MakeAdapter(const std::string& base_path, const MakeAdapterOptions& options,
                   const std::string& path);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_MAKE_ADAPTER_H_
