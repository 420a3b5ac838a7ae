// What -m and its like say, made into a file: the one place where commands look for models.
//
// One thread. Loading shows its progress on stderr.
#ifndef WEFT_CLI_FLAGS_MODEL_FINDER_H_
#define WEFT_CLI_FLAGS_MODEL_FINDER_H_

#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "cli/terminal/pull_meter.h"
#include "hub/model_source.h"

namespace weft::cli {

class ModelFinder {
 public:
  // `models_folder`: of --models-dir; empty: the environment's.
  explicit ModelFinder(const std::string& models_folder);

  // See hub::ModelSource.
  StatusOr<std::string> Find(const std::string& what);
  StatusOr<std::string> Pull(const std::string& what);
  const hub::ModelSource& source() const { return source_; }

 private:
  PullMeter meter_;
  const hub::ModelSource source_;
};

void AddModelsFolderFlag(CLI::App* app, std::string* folder);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_MODEL_FINDER_H_
