// weft show --accuracy: what each KV type costs a model on a text.
#ifndef WEFT_CLI_COMMANDS_KV_ACCURACY_H_
#define WEFT_CLI_COMMANDS_KV_ACCURACY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "weft/model.h"

namespace weft::cli {

struct KvAccuracy {
  std::string kv;  // as --kv takes it
  double bytes_per_token = 0;
  double kl = 0;         // mean over the rows, to the first type's probabilities
  double same_best = 0;  // share of the rows with the same most probable token
};

// Computes the tokens with every KV type that the model's backend has: f32 first, which is exact.
// Rows with few tokens before them do not count. `n_threads`: of each type's engine.
StatusOr<std::vector<KvAccuracy>> MeasureKvTypes(std::shared_ptr<const Model> model,
                                                 const std::vector<int32_t>& tokens, int n_threads);

}  // namespace weft::cli

#endif  // WEFT_CLI_COMMANDS_KV_ACCURACY_H_
