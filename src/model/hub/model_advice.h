// The sampling advice for a local model. Advice attached to its name (the parameters in Ollama's
// layers, the catalogue) precedes that of its file.
//
// Blocks if the model has to be found; any thread.
#ifndef WEFT_MODEL_HUB_MODEL_ADVICE_H_
#define WEFT_MODEL_HUB_MODEL_ADVICE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/formats/model_file.h"
#include "model/hub/local_models.h"
#include "model/hub/names/catalogue.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::hub {

struct ModelAdvice {
  SamplingAdvice advice;
  std::vector<std::string> by;  // the sources: "ollama", "catalogue", "file"
};

ModelAdvice AdviceOf(const LocalModel& model, const ModelFile& file,
                     std::span<const CatalogueEntry> catalogue = Catalogue());

// Parses Ollama's parameters from JSON.
SamplingAdvice ParseOllamaParameters(std::string_view json);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_MODEL_ADVICE_H_
