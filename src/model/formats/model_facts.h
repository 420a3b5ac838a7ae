// A summary of a model from its file's head, for lists and display.
//
// A pure function; any thread.
#ifndef WEFT_MODEL_FORMATS_MODEL_FACTS_H_
#define WEFT_MODEL_FORMATS_MODEL_FACTS_H_

#include <cstdint>
#include <string>

#include "model/formats/model_file.h"

namespace weft {

struct ModelFacts {
  std::string title;  // general.name; may be empty
  std::string architecture;
  std::string quantization;  // from general.file_type, else the most common tensor type
  int64_t context_tokens = 0;
  int64_t embedding_length = 0;
  int64_t n_parameters = 0;
  int64_t tensor_bytes = 0;
};

ModelFacts FactsOf(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_MODEL_FACTS_H_
