// Sampling advice in a model file. Pure functions; any thread.
#ifndef WEFT_MODEL_FORMATS_SAMPLING_ADVICE_H_
#define WEFT_MODEL_FORMATS_SAMPLING_ADVICE_H_

#include "model/formats/model_file.h"
#include "model/sampling/sampling_parameters.h"

namespace weft {

// The file's general.sampling.* keys. Invalid values are left out.
SamplingAdvice ReadSamplingAdvice(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_SAMPLING_ADVICE_H_
