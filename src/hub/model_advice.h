// How a model that is here wants to be sampled, whoever says so. What comes with its name (the
// parameters of Ollama's layers, the catalogue) goes before what its file says.
//
// Blocking where the model has to be found; any thread.
#ifndef WEFT_HUB_MODEL_ADVICE_H_
#define WEFT_HUB_MODEL_ADVICE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_file.h"
#include "formats/sampling_advice.h"
#include "hub/catalogue.h"
#include "hub/local_models.h"

namespace weft::hub {

struct ModelAdvice {
  SamplingAdvice advice;
  std::vector<std::string> by;  // "ollama", "catalogue", "file": who says something
};

ModelAdvice AdviceOf(const LocalModel& model, const ModelFile& file,
                     std::span<const CatalogueEntry> catalogue = Catalogue());

// Of the JSON of Ollama's parameters.
SamplingAdvice ParseOllamaParameters(std::string_view json);

}  // namespace weft::hub

#endif  // WEFT_HUB_MODEL_ADVICE_H_
