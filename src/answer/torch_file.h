// Reads the tensor in a file of torch.save: a zip archive with a description, which is a pickle,
// and the numbers.
//
// A pickle is a program, but this one is not run: its instructions are read one by one, and only
// those that describe one tensor of plain storage are accepted. The bytes are not trusted. Pure
// functions.
#ifndef WEFT_ANSWER_TORCH_FILE_H_
#define WEFT_ANSWER_TORCH_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::serve {

struct TorchTensor {
  std::string storage;  // "FloatStorage"
  std::vector<int64_t> shape;
  std::string_view bytes;  // the whole storage, as a view into the archive
  int64_t offset = 0;      // values before the first
};

// Accepts only a tensor whose values are in C order.
StatusOr<TorchTensor> ReadTorchFile(std::string_view archive);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_TORCH_FILE_H_
