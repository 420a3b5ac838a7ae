// Reads the head of one safetensors file: names, types, shapes, and where the values lie.
//
// A file is a u64 length, as many bytes of JSON, and the values. Numbers are little-endian, rows
// are contiguous. Everything is checked here: a tensor's bytes are exactly those of its shape. Any
// thread.
#ifndef WEFT_MODEL_FORMATS_HF_SAFETENSORS_H_
#define WEFT_MODEL_FORMATS_HF_SAFETENSORS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/files/mapped_file.h"
#include "base/function_ref.h"
#include "base/status.h"

namespace weft {

struct SafeTensor {
  std::string name;
  DType type;
  std::vector<int64_t> dims;        // the contiguous one first, as in GGUF; 1 to 4 of them
  std::span<const std::byte> data;  // in the mapping
};

// The tensors whose names are wanted; the others may be of any type. Errors name the file and the
// tensor. UNIMPLEMENTED: a type other than F32, F16 and BF16.
StatusOr<std::vector<SafeTensor>> ReadSafeTensors(
    const MappedFile& file, FunctionRef<bool(const std::string& name)> is_wanted);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_HF_SAFETENSORS_H_
