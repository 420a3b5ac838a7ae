#include "cli/flags/model_removal.h"

#include <memory>

#include "compute/cpu/packed_copy.h"
#include "model/formats/model_file.h"
#include "model/hub/files.h"
#include "model/hub/remove_model.h"

namespace weft::cli {

StatusOr<int64_t> RemoveModelAndCopy(const hub::Places& places, const hub::LocalModel& model) {
  // Afterwards, nothing says which copy is the model's.
  std::shared_ptr<const ModelFile> file;
  if (hub::IsFolder(places.packed_copies)) {
    if (auto opened = ModelFile::Open(model.path); opened.ok()) file = *std::move(opened);
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t freed, hub::RemoveModel(places, model));
  if (file == nullptr || hub::FileBytes(model.path) >= 0 || hub::IsFolder(model.path)) return freed;
  WEFT_ASSIGN_OR_RETURN(const int64_t of_copy, cpu::RemovePackedCopy(places.packed_copies, *file));
  return freed + of_copy;
}

}  // namespace weft::cli
