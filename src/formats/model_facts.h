// What a model's head tells about it in short, for lists and for people.
//
// A pure function; any thread.
#ifndef WEFT_FORMATS_MODEL_FACTS_H_
#define WEFT_FORMATS_MODEL_FACTS_H_

#include <cstdint>
#include <string>

#include "formats/model_file.h"

namespace weft {

struct ModelFacts {
  std::string title;  // general.name; empty: it has none
  std::string architecture;
  std::string quantization;  // as general.file_type has it, else what most of it is made of
  int64_t context_tokens = 0;
  int64_t n_parameters = 0;
  int64_t tensor_bytes = 0;
};

ModelFacts FactsOf(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_FORMATS_MODEL_FACTS_H_
