// Projector files from anywhere. A spec that is made of one has tensors of the sizes that it says,
// and sizes of pictures that can be planned.
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "engine/vision/prepare.h"
#include "model/formats/model_file.h"
#include "model/pictures/picture_spec.h"

namespace {

void CheckPlans(const weft::PicturePreparation& preparation) {
  for (const auto& [width, height] : {std::pair{1, 1}, std::pair{640, 480}, std::pair{3, 500}}) {
    const auto plan = weft::vision::PlanPicture(preparation, width, height);
    if (!plan.ok()) continue;
    for (const auto& size : plan->resizes) {
      WEFT_CHECK(size.width > 0 && size.height > 0, "a picture of some pixels");
    }
    WEFT_CHECK(plan->n_patches > 0, "some patches");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  const auto file = weft::ModelFile::FromBytes("input", {bytes.get(), size});
  if (!file.ok()) return 0;
  const auto spec = weft::BuildPictureSpec(**file);
  if (!spec.ok()) {
    WEFT_CHECK(!spec.status().message().empty(), "a sentence");
    return 0;
  }
  WEFT_CHECK(!spec->outputs.empty() && spec->width > 0, "some embeddings");
  int stage_no = 0;
  for (const weft::PictureStage& stage : spec->stages) {
    WEFT_CHECK(stage.input < stage_no++, "stages read earlier ones");
    WEFT_CHECK(stage.spec.row_input.has_value(), "stages have no tokens");
    WEFT_CHECK(stage.change.factor > 0, "a factor");
  }
  CheckPlans(spec->preparation);
  return 0;
}
