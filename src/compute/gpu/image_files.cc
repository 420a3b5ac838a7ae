#include "compute/gpu/image_files.h"

#include <utility>

namespace weft::gpu {

StatusOr<ImageFiles> ImageFiles::Open(const std::string& folder,
                                      std::span<const char* const> names) {
  ImageFiles images;
  for (const char* const name : names) {
    const std::string stem = StrCat(folder, "/", name);
    auto file = MappedFile::Open(StrCat(stem, ".fatbin"));
    if (!file.ok()) file = MappedFile::Open(StrCat(stem, ".cubin"));
    if (!file.ok()) {
      return FailedPrecondition("WEFT_CUDA_IMAGES: there is neither ", stem, ".fatbin nor ", stem,
                                ".cubin; it takes the place of all kernels of this program");
    }
    // The driver reads as many bytes as the image's own header says.
    if ((*file)->bytes().empty()) {
      return FailedPrecondition("WEFT_CUDA_IMAGES: ", (*file)->path(), " is empty");
    }
    images.images_.push_back((*file)->bytes().data());
    images.files_.push_back(*std::move(file));
  }
  return images;
}

}  // namespace weft::gpu
