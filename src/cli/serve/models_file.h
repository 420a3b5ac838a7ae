// The file of --models: a table per model, in a part of TOML.
//
//   [haiku]                     # the model's name; in quotes if it has other characters than - _ .
//   model = "smollm2-135m"      # as for -m
//   aliases = ["claude-haiku-4-5", "small"]
//   pinned = true
//   ctx = 8192                  # any flag of a model
//
// A value is a string, a number, true, false, or an array of these on one line. Pure functions; any
// thread.
#ifndef WEFT_CLI_SERVE_MODELS_FILE_H_
#define WEFT_CLI_SERVE_MODELS_FILE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace weft::cli {

struct ModelTable {
  struct Value {
    std::string key;
    std::vector<std::string> items;  // one, unless it is an array
    bool is_array = false;
    int line = 0;
  };
  std::string name;
  int line = 0;
  std::vector<Value> values = {};
};

// INVALID_ARGUMENT names the line.
StatusOr<std::vector<ModelTable>> ParseModelsFile(std::string_view text);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_MODELS_FILE_H_
