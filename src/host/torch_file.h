// The tensor in what torch.save wrote: a zip archive with a description, a pickle, and the numbers
// beside it.
//
// A pickle is a program; this one is not run. Its instructions are read one by one, and only those
// that describe one tensor of plain storage are known. The bytes are not trusted. Pure functions.
#ifndef WEFT_HOST_TORCH_FILE_H_
#define WEFT_HOST_TORCH_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::serve {

struct TorchTensor {
  std::string storage;  // "FloatStorage"
  std::vector<int64_t> shape;
  std::string_view bytes;  // of the whole storage, into the archive
  int64_t offset = 0;      // values before the first
};

// A tensor whose values lie in C order.
StatusOr<TorchTensor> ReadTorchFile(std::string_view archive);

}  // namespace weft::serve

#endif  // WEFT_HOST_TORCH_FILE_H_
