// The sampling advice for a local model. Advice attached to its name (the parameters in Ollama's
// layers, the catalogue) precedes that of its file.
//
// Blocks if the model has to be found; any thread.
#ifndef WEFT_HUB_MODEL_ADVICE_H_
#define WEFT_HUB_MODEL_ADVICE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_file.h"
#include "hub/local_models.h"
#include "hub/names/catalogue.h"
#include "sampling/sampling_parameters.h"

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

#endif  // WEFT_HUB_MODEL_ADVICE_H_
