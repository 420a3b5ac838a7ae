// Projector files for pictures (llama.cpp's "mmproj"), with their tensors in the form of products.
//
// Such a file holds the product over patches as a convolution's kernel, two of them where a model
// takes pairs of frames, and gemma3's projection with rows and columns the other way round. Here
// they become matrices with a row per output. Nothing above formats/ knows the other forms.
//
// A pure function; any thread. It never fails: an unknown file stays as it is, and its
// reader refuses it.
#ifndef WEFT_MODEL_FORMATS_PROJECTOR_DIALECT_H_
#define WEFT_MODEL_FORMATS_PROJECTOR_DIALECT_H_

#include <cstddef>
#include <deque>
#include <string_view>
#include <vector>

#include "model/formats/model_file.h"

namespace weft {

// Rewrites the tensors of a projector file. New bytes go to `bytes`, whose elements keep their
// addresses.
void TranslateProjector(std::string_view projector, std::vector<TensorInfo>* tensors,
                        std::deque<std::vector<std::byte>>* bytes);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_PROJECTOR_DIALECT_H_
