// An importance matrix: for each weight matrix of a model, how large its inputs are, measured on a
// text. `weft imatrix` computes one, `weft-quantize --imatrix` reads it, and both forms of file are
// llama.cpp's.
//
// A value type; a const one may be read from any thread.
#ifndef WEFT_MODEL_FORMATS_IMPORTANCE_MATRIX_H_
#define WEFT_MODEL_FORMATS_IMPORTANCE_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft {

class ImportanceMatrix {
 public:
  // Of one tensor. A stack of matrices (the experts of a mixture) has sums for each of them.
  struct Entry {
    std::vector<double> sums;    // of the squares of each input, over all rows
    std::vector<double> counts;  // rows: one number for all matrices, or one for each
  };

  // Reads a file of today's form (GGUF) or of the older binary one, which does not tell how many
  // tokens a chunk had: 512 are assumed, as they only matter when files are added up.
  static StatusOr<ImportanceMatrix> Read(const std::string& path);
  // The older form alone, from memory. `name` replaces the path in errors.
  static StatusOr<ImportanceMatrix> FromOldForm(std::string_view name,
                                                std::span<const std::byte> bytes);
  // Writes the GGUF form; the file appears when it is complete.
  Status Write(const std::string& path) const;

  // Adds what another text gave. INVALID_ARGUMENT if it belongs to another model.
  Status Add(const ImportanceMatrix& other);

  // The mean square of each input of a tensor's matrices of `n_in` inputs, one after the other.
  // Empty if the tensor is not known. A matrix that no row reached has ones. INVALID_ARGUMENT if
  // the entry has another size: the file belongs to another model.
  StatusOr<std::vector<float>> MeansOf(std::string_view tensor, int64_t n_in,
                                       int64_t n_matrices) const;

  std::map<std::string, Entry, std::less<>> entries;  // by the tensor's name
  std::vector<std::string> texts;                     // the files they were computed from
  int64_t n_chunks = 0, chunk_tokens = 0;
};

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_IMPORTANCE_MATRIX_H_
