// Resolves -m and similar arguments to a file: the only place where commands look for models.
//
// One thread. Shows the progress of downloads on stderr.
#ifndef WEFT_CLI_FLAGS_MODEL_FINDER_H_
#define WEFT_CLI_FLAGS_MODEL_FINDER_H_

#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "cli/terminal/pull_meter.h"
#include "model/hub/model_source.h"

namespace weft::cli {

class ModelFinder {
 public:
  // `models_folder`: from --models-dir; if empty, from the environment.
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
