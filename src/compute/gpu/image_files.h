// Compiled kernels from files instead of those in the program, to fix a kernel on a machine with a
// GPU without building the program again. WEFT_CUDA_IMAGES names the folder.
#ifndef WEFT_COMPUTE_GPU_IMAGE_FILES_H_
#define WEFT_COMPUTE_GPU_IMAGE_FILES_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/status.h"

namespace weft::gpu {

class ImageFiles {
 public:
  // Opens NAME.fatbin, or else NAME.cubin, for each name. FAILED_PRECONDITION if neither exists.
  // The images live as long as this object.
  static StatusOr<ImageFiles> Open(const std::string& folder, std::span<const char* const> names);

  std::span<const std::byte* const> images() const { return images_; }

 private:
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<const std::byte*> images_;
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_IMAGE_FILES_H_
