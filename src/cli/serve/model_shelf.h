// The models that a server has in memory, by file: one that is served and drafts for another is
// loaded once.
//
// Any thread.
#ifndef WEFT_CLI_SERVE_MODEL_SHELF_H_
#define WEFT_CLI_SERVE_MODEL_SHELF_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "cli/flags/model_flags.h"
#include "weft/model.h"

namespace weft::cli {

class ModelShelf {
 public:
  // LoadFlaggedModel and LoadFlaggedDraft, unless such a model is in memory already.
  StatusOr<std::shared_ptr<const Model>> Load(const ModelFlags& flags,
                                              std::shared_ptr<const ModelFile> file,
                                              const std::function<void(double fraction)>& told);
  StatusOr<std::shared_ptr<const Model>> LoadDraft(const ModelFlags& flags, const Model& model);

 private:
  std::shared_ptr<const Model> Find(const std::string& key);
  void Put(const std::string& key, const std::shared_ptr<const Model>& model);

  Mutex mutex_;
  std::map<std::string, std::weak_ptr<const Model>> models_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_MODEL_SHELF_H_
